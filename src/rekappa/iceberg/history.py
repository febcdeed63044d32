"""What happened to a table, from its snapshots: which runs were published, who changed a window."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rekappa.errors import HistoryGone
from rekappa.iceberg.commits import WRITER
from rekappa.iceberg.private import Filters, changed_files, listed
from rekappa.iceberg.retention import PUBLICATION
from rekappa.timeline import format_instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUBLISH = "rekappa.publish"
UNDO = "rekappa.undo"


def tag_before(run: str) -> str:
    """The tag that marks the table's state before this run was published."""
    return f"rekappa_before_{run}"


@dataclass(frozen=True, slots=True)
class Change:
    """One commit that touched the window."""

    snapshot: int
    at: datetime
    operation: str
    by: str
    files: int

    def __str__(self) -> str:
        return f"{self.by} at {format_instant(self.at)} ({self.operation}, snapshot {self.snapshot})"


def ancestors(table: Any) -> Iterator[Any]:
    """The snapshots of the main branch, newest first, as far back as the table remembers."""
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parentId()
        snapshot = table.snapshot(parent) if parent is not None else None


def current_id(table: Any) -> int | None:
    snapshot = table.currentSnapshot()
    return None if snapshot is None else int(snapshot.snapshotId())


@dataclass(frozen=True, slots=True)
class Publication:
    """What the table itself says of a run: the newest commit that published or undid it."""

    snapshot: int
    parent: int | None
    at: datetime
    undone: bool


def noted(run: str) -> str:
    """The table's property that says what became of a run's publication, for as long as it can be undone.

    Snapshots expire by the table's own rules; a property does not.
    """
    return f"{PUBLICATION}{run}"


def note_of(state: str, snapshot: int, parent: int | None) -> str:
    """What the property says: published or undone by this snapshot, and the one before it."""
    return json.dumps({"state": state, "snapshot": snapshot, "parent": parent, "at": datetime.now(UTC).isoformat()})


def publication(table: Any, run: str) -> Publication | None:
    for snapshot in ancestors(table):
        summary = snapshot.summary()
        for stamp, undone in ((PUBLISH, False), (UNDO, True)):
            if summary.get(stamp) == run:
                parent = snapshot.parentId()
                return Publication(int(snapshot.snapshotId()), parent and int(parent), _moment(snapshot), undone)
    note = table.properties().get(noted(run))
    if note is None:
        return None
    kept = json.loads(note)
    return Publication(kept["snapshot"], kept["parent"], datetime.fromisoformat(kept["at"]), kept["state"] == UNDO)


def changes(spark: SparkSession, table: Any, expression: Any, since: int | None, own: str) -> list[Change]:
    """Commits after snapshot `since` (None: ever) that may have changed rows that fit the expression, oldest first.

    Compaction changes no rows and the run's own publish and undo are not somebody else's: both are left out.
    Judged by file: a rewritten file whose bounds fit counts. Raises `HistoryGone` when the table does not remember so
    far back.
    """
    filters = Filters(spark)
    metrics = filters.touching(table, expression)
    found = []
    for snapshot in _after(table, since):
        summary = snapshot.summary()
        if snapshot.operation() == "replace" or own in (summary.get(PUBLISH), summary.get(UNDO)):
            continue
        delta = changed_files(spark, table, snapshot)
        data = [*listed(spark, delta.addedDataFiles()), *listed(spark, delta.removedDataFiles())]
        touched = sum(1 for file in data if metrics.eval(file) and filters.partition_fits(table, expression, file))
        touched += sum(
            1 for file in listed(spark, delta.addedDeleteFiles()) if filters.partition_fits(table, expression, file)
        )
        if touched:
            by = _who(summary)
            found.append(Change(int(snapshot.snapshotId()), _moment(snapshot), str(snapshot.operation()), by, touched))
    return found[::-1]


def stranger(table: Any) -> Change | None:
    """The newest change of rows that no run of ours made, in a table that belongs to one run alone."""
    for snapshot in ancestors(table):
        summary = snapshot.summary()
        if snapshot.operation() != "replace" and summary.get(WRITER) is None:
            by = _who(summary)
            return Change(int(snapshot.snapshotId()), _moment(snapshot), str(snapshot.operation()), by, 0)
    return None


def _who(summary: Any) -> str:
    """For people: who made a snapshot, as far as it says."""
    for stamp, did in ((PUBLISH, "publishing"), (UNDO, "undoing")):
        if run := summary.get(stamp):
            return f"{did} run {run}"
    return str(summary.get(WRITER) or summary.get("spark.app.id") or summary.get("app-id") or "an unnamed writer")


def _after(table: Any, since: int | None) -> list[Any]:
    """The snapshots after `since`, newest first."""
    found: list[Any] = []
    for snapshot in ancestors(table):
        if since is not None and snapshot.snapshotId() == since:
            return found
        found.append(snapshot)
    if since is not None or (found and found[-1].parentId() is not None):
        before = "it was empty" if since is None else f"its snapshot was {since}"
        raise HistoryGone(
            f"Cannot tell who changed {table.name()} since {before}: its history no longer reaches back to then",
            hint="Snapshots were expired, or the table was rolled back. Backfill again, and keep snapshots longer than "
            "it takes from backfill to publish; or give --force to publish without this check.",
        )
    return found


def _moment(snapshot: Any) -> datetime:
    return datetime.fromtimestamp(snapshot.timestampMillis() / 1000, UTC)
