"""Looking after a table: snapshots and metadata files that nobody needs any more go, by the table's own rule.

    upkeep = Upkeep("lake.rmi.plays", pins_of(home))
    upkeep.after_commit(spark)          # now and then it does something

Only a table that says how long its snapshots last is touched: those that rekappa makes do, for others it is the
property `history.expire.max-snapshot-age-ms`. What must last of a snapshot is noted in the table first
(`rekappa.iceberg.retention`), so that a process killed in between leaves both.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.iceberg.private import java_table, metadata_of
from rekappa.iceberg.retention import AGE, kept_for, leaving
from rekappa.spark.failures import read_failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW_METADATA_FILES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
"""For every table of ours: each commit writes one metadata file, and the twenty-first before it goes."""
SNAPSHOTS = timedelta(days=3)
"""How long snapshots last in the tables that rekappa makes for archives and live sinks."""
LASTING = {**FEW_METADATA_FILES, AGE: str(SNAPSHOTS // timedelta(milliseconds=1))}
"""For tables that are written for as long as the app lives."""
BETWEEN = timedelta(hours=1)

Pins = Callable[[], Collection[int]]
"""Snapshots that somebody outside the table still needs, asked for each time."""


def expire(spark: SparkSession, name: str, pinned: Collection[int], now: datetime | None = None) -> tuple[int, bool]:
    """Let go of what the table's own rule allows; answers how many snapshots went, and whether more could."""
    table = java_table(spark, name)
    metadata = metadata_of(spark, table)
    age = kept_for(metadata)
    if age is None:
        return 0, False
    found = leaving(metadata, (now or datetime.now(UTC)) - age, pinned)
    if not found.snapshots:
        return 0, False
    if found.note or found.drop:
        update = table.updateProperties()
        for key, value in found.note.items():
            update = update.set(key, value)
        for key in found.drop:
            update = update.remove(key)
        update.commit()
    # Zero keeps what is not named here: by itself Iceberg would also let go of the pinned.
    going = table.expireSnapshots().expireOlderThan(0)
    for snapshot in found.snapshots:
        going = going.expireSnapshotId(snapshot)
    going.commit()
    return len(found.snapshots), found.more


class Upkeep:
    """Lets one table's old snapshots go once an hour, in the process that writes to it, right after a commit."""

    def __init__(self, table: str, pins: Pins = frozenset) -> None:
        self.table, self._pins = table, pins
        self._next = 0.0

    def after_commit(self, spark: SparkSession) -> None:
        """Never fails the batch that it follows: what could not go now can go in an hour."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + BETWEEN.total_seconds()
        try:
            _, more = expire(spark, self.table, self._pins())
        except Exception as error:
            cause = read_failure(error).cause
            logging.getLogger(__name__).warning("old snapshots of %s are still there: %s", self.table, cause)
            return
        if more:
            self._next = 0.0
