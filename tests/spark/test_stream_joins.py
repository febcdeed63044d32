"""Joins that are not the same of streams as of tables: what Spark alone does, and what our plan says of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from shapes import shape_of

from rekappa.plan.mode import Safe, Unsafe, assess
from rekappa.plan.plan import Mode
from rekappa.plan.shape import Operation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RANGE = "r.event_ts BETWEEN l.event_ts AND l.event_ts + INTERVAL 10 MINUTES"
Pair = tuple[int | None, int | None]
APART: set[Pair] = {(2, None), (3, None), (None, 4)}


def joining(on: str, how: str, left: str = "true", right: str = "true") -> Callable[[DataFrame, DataFrame], DataFrame]:
    from pyspark.sql import functions as F

    def job(a: DataFrame, b: DataFrame) -> DataFrame:
        one, other = (rows.withWatermark("event_ts", "10 minutes") for rows in (a.where(left), b.where(right)))
        both = one.alias("l").join(other.alias("r"), F.expr(f"{on} AND {RANGE}"), how)
        kept = [] if how == "leftsemi" else [F.col("r.id").alias("other")]
        return both.select("l.id", *kept, "l.event_ts")

    return job


UNLIKE = [
    ("l.v = r.v AND l.show > 5", "leftOuter"),
    ("l.v = r.v AND r.show > 5", "rightOuter"),
    ("l.v = r.v AND l.v IS NOT NULL AND r.show > 5", "fullOuter"),
    ("l.v = r.v", "fullOuter"),
    ("l.day = r.day AND nullif(l.v, '') = nullif(r.v, '')", "inner"),
]
ALIKE = [
    ("l.v = r.v", "inner"),
    ("l.v = r.v AND l.show > 5 AND r.show > 5", "inner"),
    ("l.v = r.v AND r.show > 5", "leftOuter"),
    ("l.v = r.v AND l.show > 5", "rightOuter"),
    ("l.v = r.v AND l.show > 5", "leftsemi"),
    ("l.v <=> r.v", "leftOuter"),
    ("l.v = r.v AND l.show + r.show > 5", "fullOuter:known"),
]


@pytest.mark.parametrize(("on", "how"), UNLIKE)
def test_a_join_that_a_batch_job_makes_otherwise_is_not_for_bulk(spark: SparkSession, on: str, how: str) -> None:
    shape = shape_of(spark, joining(on, how))
    assert shape.has(Operation.AS_STREAMED)
    found = assess(shape)
    assert isinstance(found[Mode.BULK], Unsafe)
    assert isinstance(found[Mode.ORDERED], Safe)


@pytest.mark.parametrize(("on", "how"), ALIKE)
def test_other_joins_are(spark: SparkSession, on: str, how: str) -> None:
    how, _, known = how.partition(":")
    shape = shape_of(spark, joining(on, how, left="v IS NOT NULL" if known else "true"))
    assert not shape.has(Operation.AS_STREAMED), shape.of(Operation.AS_STREAMED)
    assert isinstance(assess(shape)[Mode.BULK], Safe)


@pytest.mark.parametrize(
    ("on", "how", "streamed", "batched"),
    [
        ("l.v = r.v AND l.show > 5", "leftOuter", {(3, None)}, {(2, None), (3, None), (8, None)}),
        ("l.v = r.v", "fullOuter", {*APART, (8, 8)}, {*APART, (8, None), (None, 8)}),
    ],
)
def test_what_spark_does(
    spark: SparkSession, tmp_path: Path, on: str, how: str, streamed: set[Pair], batched: set[Pair]
) -> None:
    """The day it does otherwise, `unlike_batch` can go."""
    start = datetime(2026, 11, 1, tzinfo=UTC)
    shape = "id BIGINT, show BIGINT, v STRING, event_ts TIMESTAMP"

    def put(side: str, number: int, rows: list[tuple[int, str | None]], at: datetime) -> None:
        made = spark.createDataFrame([(key, 3 if key == 3 else 9, v, at) for key, v in rows], shape)
        made.coalesce(1).write.mode("append").parquet(f"{tmp_path}/{side}/{number}")

    put("l", 0, [(1, "a"), (2, "left"), (3, "low"), (8, None)], start)
    put("r", 0, [(1, "a"), (4, "right"), (8, None)], start)
    for number in (1, 2, 3):
        for side in "lr":
            put(side, number, [(99, "later")], start + timedelta(hours=number))

    def read(side: str, stream: bool) -> DataFrame:
        reader = spark.readStream.option("maxFilesPerTrigger", 1) if stream else spark.read
        return reader.schema(shape).parquet(f"{tmp_path}/{side}/*")

    got: list[Pair] = []

    def take(rows: DataFrame, number: int) -> None:
        got.extend((row[0], row[1]) for row in rows.collect())

    query = (
        joining(on, how)(read("l", stream=True), read("r", stream=True))
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "log"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    told = [(row[0], row[1]) for row in joining(on, how)(read("l", stream=False), read("r", stream=False)).collect()]
    assert {pair for pair in got if not {1, 99} & {*pair}} == streamed
    assert {pair for pair in told if not {1, 99} & {*pair}} == batched
