"""Several rows of one key in staging, and which of them the sink would hold.

A sink that upserts keeps one row per key, the last that was written. So the staging of such a sink carries, beside
each row, the number of the micro-batch that made it: `last_versions` answers the rows that production would be left
with, had it run these batches. Inside a batch staging follows the sink's own rules (`rekappa.sinks.keys`).

A bulk run has no order. Its rows carry no number, and a key may have several rows only if the sink declares a version
that ranks them, or if they are all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekappa.errors import RunError
from rekappa.sinks.iceberg import IcebergAppend
from rekappa.sinks.keys import newest_per_key, newness, refused, tie_break, whole
from rekappa.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from rekappa.sinks.contract import BatchId

BATCH = "__rekappa_batch__"
"""The column that holds the number of the batch; null in rows that have no order."""
SHOWN = 3


class StagedVersions(IcebergAppend):
    """Staging of a sink that upserts: a batch leaves what it would have left in the sink, beside its number.

    `ordered` says that batches are numbered in the order of the run; without it (bulk) rows are added as they are.
    """

    ordered = True

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        from pyspark.sql.types import LongType, StructField, StructType

        super().prepare(spark, StructType([*schema.fields, StructField(BATCH, LongType())]))

    def write(self, rows: DataFrame, batch: BatchId) -> None:
        from pyspark.sql import functions as F

        number = F.lit(batch.number if self.ordered else None).cast("long")
        newest = newest_per_key(rows, self.key, self.event_time, self.version) if self.ordered else rows
        try:
            super().write(newest.withColumn(BATCH, number), batch)
        except Exception as error:
            raise refused(error, self.name) from error


def last_versions(
    rows: DataFrame, key: tuple[str, ...], event_time: str | None = None, version: str | None = None
) -> DataFrame:
    """The last row of each key, without the batch's number: by version, then by batch."""
    from pyspark.sql import functions as F

    plain = rows.drop(BATCH)
    rank = F.struct(*newness(None, version), F.col(BATCH), *newness(event_time, None), tie_break(plain))
    grouped = rows.groupBy(*(F.col(quoted(name)) for name in key)).agg(F.max_by(whole(plain), rank).alias("row"))
    return grouped.select("row.*")


def refuse_contested(rows: DataFrame, key: tuple[str, ...], sink: str, version: str | None = None) -> None:
    """Refuse rows without order if a key has several that differ and nothing says which is the last."""
    from pyspark.sql import functions as F

    plain = rows.drop(BATCH)
    ranked = [*key, version] if version else [*key]
    numbered = plain.select(*(F.col(quoted(name)) for name in ranked), tie_break(plain).alias(BATCH))
    several = numbered.groupBy(*(F.col(quoted(name)) for name in ranked)).agg(
        F.min(BATCH).alias("low"), F.max(BATCH).alias("high")
    )
    found = several.where("low <> high").select(*(F.col(quoted(name)) for name in ranked))
    some = found.take(SHOWN + 1)
    if not some:
        return
    shown = "; ".join(", ".join(f"{name}={row[name]}" for name in ranked) for row in some[:SHOWN])
    more = " and more" if len(some) > SHOWN else ""
    raise RunError(
        f"Cannot tell the last row of a key in sink {sink!r}: bulk mode keeps no order, and these keys have rows that "
        f"differ: {shown}{more}",
        hint=f"Use --mode strict, or name the column that ranks the rows of a key:  sinks.{sink}.version",
    )
