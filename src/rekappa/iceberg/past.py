"""The rows of a table as they were: at a snapshot, or at a tag."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from rekappa.spark.names import quoted
from rekappa.timeline import instant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def rows_at(spark: SparkSession, name: str, version: int | str | None) -> DataFrame:
    """The rows at a snapshot (its id) or a tag (its name), in the columns of that time; none for None."""
    if version is None:
        return spark.table(name).limit(0)
    return spark.read.option("versionAsOf", str(version)).table(name)


def was_current(table: Any) -> list[tuple[datetime, int]]:
    """Since when which snapshot was the table, the oldest first; one that a rollback undid is among them.

    Begins where Iceberg's own log of it does: it forgets what lies before a snapshot that has expired.
    """
    return [(instant(int(one.timestampMillis()) * 1000), int(one.snapshotId())) for one in table.history()]


def began_empty(table: Any) -> bool:
    """Whether the log of what was current goes back to the table's first snapshot."""
    first = next(iter(table.history()), None)
    if first is None:
        return True
    snapshot = table.snapshot(first.snapshotId())
    return snapshot.parentId() is None and snapshot.timestampMillis() == first.timestampMillis()


def in_columns_of(rows: DataFrame, known: DataFrame) -> DataFrame:
    """The rows in the columns of `known`: one that they lack is null, one that only they have is left out."""
    from pyspark.sql import functions as F

    have = set(rows.columns)
    return rows.select(
        *(
            F.col(quoted(field.name)) if field.name in have else F.lit(None).cast(field.dataType).alias(field.name)
            for field in known.schema
        )
    )
