"""Times that can't be told from the columns of the sources: margins that nobody knows are never guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from shapes import M, reaches, shape_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ELSEWHERE = [
    "from_utc_timestamp(event_ts, 'Europe/Berlin')",
    "to_utc_timestamp(event_ts, 'Europe/Berlin')",
    "CAST(convert_timezone('UTC', 'Europe/Berlin', CAST(event_ts AS TIMESTAMP_NTZ)) AS TIMESTAMP)",
    "CAST(date_format(event_ts, 'yyyy-MM-dd HH:00:00') AS TIMESTAMP)",
    "CAST(next_day(event_ts, 'MON') AS TIMESTAMP)",
    "timestamp_seconds(unix_timestamp(event_ts) + 1200)",
    "event_ts + make_interval(0, 0, 0, 0, 0, CAST(show AS INT))",
]


@pytest.mark.parametrize("text", ELSEWHERE)
@pytest.mark.parametrize("mode", ["append", "update"])
def test_a_window_over_a_time_that_is_not_understood(spark: SparkSession, text: str, mode: str) -> None:
    """By a column of its own, or right in the window, which update mode allows."""
    from pyspark.sql import functions as F

    def moved(a: DataFrame) -> DataFrame:
        if mode == "update":
            return a.groupBy(F.window(F.expr(text), "10 minutes"), "show").count()
        named = a.withColumn("t", F.expr(text)).withWatermark("t", "5 minutes")
        return named.groupBy(F.window("t", "10 minutes"), "show").count()

    assert shape_of(spark, moved, "window.start", mode).span is None


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("timestampadd(MINUTE, 40, event_ts)", 40 * M, -30 * M),
        ("event_ts - INTERVAL 7 MINUTES", -7 * M, 17 * M),
        ("coalesce(event_ts, expires_at)", 0 * M, 10 * M),
        ("least(event_ts, expires_at - INTERVAL 1 HOUR)", 0 * M, 70 * M),
        ("CASE WHEN id > 3 THEN event_ts WHEN id > 1 THEN NULL ELSE expires_at + INTERVAL 1 MINUTE END", 1 * M, 10 * M),
        ("if(id > 3, event_ts, expires_at)", 0 * M, 10 * M),
    ],
)
def test_a_window_over_one_of_several_times(spark: SparkSession, text: str, before: object, after: object) -> None:
    from pyspark.sql import functions as F

    def moved(a: DataFrame) -> DataFrame:
        named = a.withColumn("t", F.expr(text)).withWatermark("t", "5 minutes")
        return named.groupBy(F.window("t", "10 minutes"), "show").count()

    shape = shape_of(spark, moved, "window.start")
    assert reaches(shape) == (before, after)
    assert {anchor.column for anchor in shape.anchors} <= {"event_ts", "expires_at"}


def test_a_time_of_another_column_than_the_one_that_inputs_go_together_by(spark: SparkSession) -> None:
    """The latest expiry of an hour's events: what is near by the one column may be far by the other."""
    from pyspark.sql import functions as F

    def latest(a: DataFrame) -> DataFrame:
        hours = a.withWatermark("event_ts", "5 minutes").groupBy(F.window("event_ts", "10 minutes"), "show")
        return hours.agg(F.max("expires_at").alias("until"), F.max("event_ts").alias("last"))

    def both(a: DataFrame, b: DataFrame) -> DataFrame:
        one, other = (frame.withWatermark("event_ts", "5 minutes") for frame in (a, b))
        near = "q.event_ts BETWEEN p.expires_at AND p.expires_at + INTERVAL 1 MINUTE"
        joined = one.alias("p").join(other.alias("q"), F.expr(f"p.id = q.id AND {near}"))
        return joined.select("p.event_ts", "p.expires_at", F.col("q.event_ts").alias("theirs"))

    assert shape_of(spark, latest, "until").span is None
    assert reaches(shape_of(spark, latest, "last")) == (10 * M, 10 * M)
    assert shape_of(spark, both, "event_ts").span is None
    assert reaches(shape_of(spark, both, "expires_at")) == (0 * M, 1 * M)
    assert reaches(shape_of(spark, both, "theirs")) == (1 * M, 0 * M)


def test_a_join_by_a_time_inside_a_struct(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def both(a: DataFrame, b: DataFrame) -> DataFrame:
        one = a.withColumn("t", F.col("inner.deep.ts")).withWatermark("t", "5 minutes")
        other = b.withWatermark("event_ts", "5 minutes")
        near = "q.event_ts BETWEEN p.inner.deep.ts AND p.inner.deep.ts + INTERVAL 1 MINUTE"
        near += " AND q.event_ts BETWEEN p.t AND p.t + INTERVAL 1 MINUTE"
        joined = one.alias("p").join(other.alias("q"), F.expr(f"p.id = q.id AND {near}"))
        return joined.select(F.col("p.inner.deep.ts").alias("deep"), F.col("p.__metadata__.kafka_ingestion_ts"))

    assert reaches(shape_of(spark, both, "deep")) == (0 * M, 1 * M)
    assert shape_of(spark, both, "kafka_ingestion_ts").span is None
