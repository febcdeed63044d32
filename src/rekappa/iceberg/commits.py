"""Exactly-once commits to an Iceberg table: each snapshot says which batch made it.

A writer stamps every commit with its own id and the batch's number. After a crash it asks whether the batch
it is about to write is already in the table. Snapshots of other writers in between do not matter, nor does it when
snapshots expire: the table then notes the last batch of each writer in its properties (`rekappa.iceberg.retention`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rekappa.iceberg.private import java_table, metadata_of
from rekappa.iceberg.retention import BATCH, WRITER, last_batch_of, newest_writer_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BATCH", "WRITER", "last_batch", "load_table", "newest_writer", "stamp"]


def stamp(writer: str, batch: int) -> dict[str, str]:
    """Write options that put the batch's name into the snapshot's summary."""
    return {f"snapshot-property.{WRITER}": writer, f"snapshot-property.{BATCH}": str(batch)}


def load_table(spark: SparkSession, name: str) -> Any:
    """Iceberg's own Java table, with its newest metadata."""
    return java_table(spark, name)


def newest_writer(spark: SparkSession, name: str) -> str | None:
    """Who made the newest stamped commit to the table, None if none is stamped."""
    return newest_writer_of(metadata_of(spark, load_table(spark, name)))


def last_batch(spark: SparkSession, name: str, writer: str) -> int | None:
    """The newest batch that this writer committed to the table's main branch, None if there is none."""
    return last_batch_of(metadata_of(spark, load_table(spark, name)), writer)
