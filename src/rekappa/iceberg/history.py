"""What happened to a table, from its snapshots: which runs were published, who changed a window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rekappa.errors import PublishError
from rekappa.iceberg.commits import WRITER
from rekappa.iceberg.span import Span
from rekappa.iceberg.tasks import listed
from rekappa.timeline import format_instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUBLISH = "rekappa.publish"
UNDO = "rekappa.undo"


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


def snapshot_at(table: Any, moment: datetime) -> int | None:
    """The snapshot that was current at a moment; None if the table was empty then.

    Refuses when the table no longer remembers that far back.
    """
    millis = int(moment.timestamp() * 1000)
    oldest = None
    for snapshot in ancestors(table):
        if snapshot.timestampMillis() <= millis:
            return int(snapshot.snapshotId())
        oldest = snapshot
    if oldest is not None and oldest.parentId() is not None:
        raise PublishError(
            f"Cannot tell who changed {table.name()} since {format_instant(moment)}: its older snapshots have expired",
            hint="Keep snapshots longer than a backfill takes, or give --force to publish without this check.",
        )
    return None


@dataclass(frozen=True, slots=True)
class Publication:
    """What the table itself says of a run: the newest commit that published or undid it."""

    snapshot: int
    parent: int | None
    at: datetime
    undone: bool


def publication(table: Any, run: str) -> Publication | None:
    for snapshot in ancestors(table):
        summary = snapshot.summary()
        for stamp, undone in ((PUBLISH, False), (UNDO, True)):
            if summary.get(stamp) == run:
                parent = snapshot.parentId()
                return Publication(int(snapshot.snapshotId()), parent and int(parent), _moment(snapshot), undone)
    return None


def changes(spark: SparkSession, table: Any, span: Span, since: int | None, own: str) -> list[Change]:
    """Commits after snapshot `since` that may have changed rows of the window, oldest first.

    Compaction changes no rows and the run's own publish and undo are not somebody else's: both are left out.
    Judged by file: a rewritten file whose bounds overlap the window counts.
    """
    jvm: Any = spark._jvm
    expression = span.expression(spark, table)
    metrics = jvm.org.apache.iceberg.expressions.InclusiveMetricsEvaluator(table.schema(), expression)
    found = []
    for snapshot in ancestors(table):
        if since is not None and snapshot.snapshotId() == since:
            break
        summary = snapshot.summary()
        if snapshot.operation() == "replace" or own in (summary.get(PUBLISH), summary.get(UNDO)):
            continue
        delta = jvm.org.apache.iceberg.SnapshotChanges.builderFor(table).snapshot(snapshot).build()
        data = [*listed(spark, delta.addedDataFiles()), *listed(spark, delta.removedDataFiles())]
        touched = sum(1 for file in data if metrics.eval(file) and _partition_fits(jvm, table, expression, file))
        touched += sum(
            1 for file in listed(spark, delta.addedDeleteFiles()) if _partition_fits(jvm, table, expression, file)
        )
        if touched:
            by = summary.get(WRITER) or summary.get("spark.app.id") or summary.get("app-id") or "an unnamed writer"
            found.append(Change(int(snapshot.snapshotId()), _moment(snapshot), str(snapshot.operation()), by, touched))
    return found[::-1]


def _partition_fits(jvm: Any, table: Any, expression: Any, file: Any) -> bool:
    spec = table.specs().get(file.specId())
    if spec.isUnpartitioned():
        return True
    projected = jvm.org.apache.iceberg.expressions.Projections.inclusive(spec).project(expression)
    return bool(jvm.org.apache.iceberg.expressions.Evaluator(spec.partitionType(), projected).eval(file.partition()))


def _moment(snapshot: Any) -> datetime:
    return datetime.fromtimestamp(snapshot.timestampMillis() / 1000, UTC)
