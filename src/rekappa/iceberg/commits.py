"""Exactly-once commits to an Iceberg table: each snapshot says which batch made it.

A writer stamps every commit with its own id and the batch's number. After a crash it asks whether the batch
it is about to write is already in the table. Snapshots of other writers in between do not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rekappa.iceberg.private import java_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITER = "rekappa.writer"
BATCH = "rekappa.batch"
MARK = "rekappa.mark"
"""In a commit without rows, which only says how far its writer is: after that batch."""


def stamp(writer: str, batch: int) -> dict[str, str]:
    """Write options that put the batch's name into the snapshot's summary."""
    return {f"snapshot-property.{WRITER}": writer, f"snapshot-property.{BATCH}": str(batch)}


def load_table(spark: SparkSession, name: str) -> Any:
    """Iceberg's own Java table, with its newest metadata."""
    return java_table(spark, name)


def newest_writer(spark: SparkSession, name: str) -> str | None:
    """Who made the newest commit of rows to the table, None if none is stamped, or none is remembered."""
    table = load_table(spark, name)
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        if writer := snapshot.summary().get(WRITER):
            return str(writer)
        parent = snapshot.parentId()
        snapshot = table.snapshot(parent) if parent is not None else None
    return None


def last_batch(spark: SparkSession, name: str, writer: str) -> int | None:
    """The newest batch that this writer committed to the table's main branch, None if there is none."""
    table = load_table(spark, name)
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        summary = snapshot.summary()
        if summary.get(WRITER) == writer:
            return int(summary.get(BATCH))
        parent = snapshot.parentId()
        snapshot = table.snapshot(parent) if parent is not None else None
    return None
