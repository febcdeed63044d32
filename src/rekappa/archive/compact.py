"""Merging the archive's small files, hour by hour and region by region.

Iceberg's own rewrite does it: a file never holds more than one partition, so none spans more than its hour; the
commit replaces files atomically and leaves the rows as they are, so the router may go on beside it. The commit
carries no stamp of the router: its readers walk past it to the router's own newest one, which stays right even
if the router committed while files were being rewritten.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.archive.damage import naming_damage
from rekappa.archive.tables import Route, quoted_table
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.private import Filters, rewrite_action, sort_order
from rekappa.record import INGESTION, OFFSET, PARTITION
from rekappa.timeline import micros

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Compaction:
    """What was, or would be, rewritten."""

    source: str
    table: str
    files_before: int
    files_after: int
    bytes: int


def compact(spark: SparkSession, route: Route, older_than: timedelta) -> Compaction:
    """Merge small files of hours that ended at least `older_than` ago; each merged file is sorted by time."""
    table = load_table(spark, quoted_table(route.table))
    before = load_table(spark, quoted_table(route.table)).currentSnapshot()
    if before is None:
        return Compaction(route.source_name, route.table, 0, 0, 0)
    end = (datetime.now(UTC) - older_than).replace(minute=0, second=0, microsecond=0)
    order = sort_order(spark, table, (INGESTION, PARTITION, OFFSET))
    action = rewrite_action(spark, table).sort(order).filter(Filters(spark).below(INGESTION, micros(end)))
    for option, value in {
        "min-input-files": "2",
        "partial-progress.enabled": "false",
        "use-starting-sequence-number": "true",
        "max-concurrent-file-group-rewrites": "2",
    }.items():
        action = action.option(option, value)
    with naming_damage(spark, route.table, "compact"):
        result = action.execute()
    return Compaction(
        route.source_name,
        route.table,
        int(result.rewrittenDataFilesCount()),
        int(result.addedDataFilesCount()),
        int(result.rewrittenBytesCount()),
    )
