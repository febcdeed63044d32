"""The first pass of a comparison: leave out what is surely equal, with next to no shuffle.

The keys' hashes choose one of many buckets, and each bucket is summed up on both sides; buckets with equal sums hold
the same rows, each as often.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rekappa.validate.sides import KEY, ROW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BUCKETS = 1 << 16
"""Enough that a few thousand differences touch a small share of the rows, few enough to be summed in memory."""
_BUCKET = "__rk_bucket__"


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The rows of either side that may differ, and how many rows each side has in all."""

    left: DataFrame
    right: DataFrame
    production: int
    staging: int


def narrowed(left: DataFrame, right: DataFrame) -> Narrowed:
    """Leave out the buckets that are the same on both sides. The answer's sides are persisted: unpersist them.

    A key that stands twice on one side only is found; rows that stand as often on both sides match.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    def side(rows: DataFrame, sign: int) -> DataFrame:
        halves = [F.col(ROW).bitwiseAND(0xFFFFFFFF), F.shiftright(ROW, 32)]
        low, high = (half * sign for half in halves)
        return rows.select(_bucket().alias(_BUCKET), low.alias("low"), high.alias("high"), F.lit(sign).alias("sign"))

    summed = side(left, 1).unionAll(side(right, -1)).groupBy(_BUCKET)
    buckets = summed.agg(
        F.sum("low").alias("low"), F.sum("high").alias("high"), F.sum("sign").alias("net"), F.count("*").alias("n")
    ).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        odd = (F.col("low") != 0) | (F.col("high") != 0) | (F.col("net") != 0)
        counted = buckets.agg(
            F.sum("n").alias("n"), F.sum("net").alias("net"), F.count_if(odd).alias("odd"), F.count("*").alias("all")
        ).first()
        assert counted is not None
        rows, net = int(counted["n"] or 0), int(counted["net"] or 0)
        unequal = (
            [row[0] for row in buckets.where(odd).select(_BUCKET).collect()]
            if counted["odd"] * 8 < counted["all"]
            else None
        )
    finally:
        buckets.unpersist()
    if unequal is not None:
        chosen = left.sparkSession.createDataFrame([(bucket,) for bucket in unequal], f"{_BUCKET} INT")
        left, right = (
            rows.join(F.broadcast(chosen), _bucket() == F.col(_BUCKET))
            .drop(_BUCKET)
            .persist(StorageLevel.MEMORY_AND_DISK)
            for rows in (left, right)
        )
    return Narrowed(left, right, (rows + net) // 2, (rows - net) // 2)


def _bucket() -> Column:
    """Rows without a key hash have a bucket of their own."""
    from pyspark.sql import functions as F

    return F.coalesce(F.pmod(KEY, F.lit(_BUCKETS)).cast("int"), F.lit(-1))
