"""What a job's own plan tells: read from Spark, without running anything."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from shapes import M, reaches, shape_of

from rekappa.plan.shape import Anchor, Operation
from rekappa.spark.analysis import analyse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_a_stateless_job(spark: SparkSession) -> None:
    def plain(a: DataFrame) -> DataFrame:
        return a.where("show > 3").select("id", "event_ts", "__metadata__.region")

    shape = shape_of(spark, plain)
    assert not shape.stateful
    assert reaches(shape) == (0 * M, 0 * M)
    assert shape.anchors == (Anchor("a", "event_ts"),)
    assert shape.delay is None
    assert shape.columns == {"a": ("id", "show", "event_ts", "__metadata__")}
    assert shape.metadata == {"a": ("region",)}


def test_windows_know_whether_the_sink_keeps_their_start_or_their_end(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def counts(a: DataFrame) -> DataFrame:
        windows = a.withWatermark("event_ts", "10 minutes").groupBy(F.window("event_ts", "5 minutes"), "show").count()
        return windows.select(F.col("window.start").alias("first"), F.col("window.end").alias("last"), "count")

    by_start, by_end = shape_of(spark, counts, "first"), shape_of(spark, counts, "last")
    assert [operator.kind for operator in by_start.operators] == [Operation.WINDOW]
    assert by_start.operators[0].length == 5 * M
    assert by_start.delay == 10 * M
    assert by_start.watermarks == {"a": 10 * M}
    assert reaches(by_start) == (0 * M, 5 * M)
    assert reaches(by_end) == (5 * M, 0 * M)
    assert by_start.columns == {"a": ("show", "event_ts")}


def test_sliding_windows_reach_as_far_as_they_are_long(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def slides(a: DataFrame) -> DataFrame:
        return a.withWatermark("event_ts", "1 minute").groupBy(F.window("event_ts", "10 minutes", "5 minutes")).count()

    shape = shape_of(spark, slides, "window.start")
    assert shape.operators[0].length == 10 * M
    assert reaches(shape) == (0 * M, 10 * M)


def test_sessions_have_no_greatest_length(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def visits(a: DataFrame) -> DataFrame:
        watermarked = a.withWatermark("event_ts", "1 minute")
        return watermarked.groupBy(F.session_window("event_ts", "5 minutes"), "id").count()

    shape = shape_of(spark, visits, "session_window.start")
    assert shape.operators[0].kind is Operation.SESSION
    assert shape.span is not None
    assert shape.span.before.length == 5 * M
    assert not shape.span.before.open
    assert shape.span.after.open


@pytest.mark.parametrize("how", ["inner", "leftOuter", "rightOuter", "fullOuter"])
def test_joins_know_their_range_from_either_side(spark: SparkSession, how: str) -> None:
    from pyspark.sql import functions as F

    def plays(a: DataFrame, b: DataFrame) -> DataFrame:
        shown, played = a.withWatermark("event_ts", "10 minutes"), b.withWatermark("event_ts", "20 minutes")
        within = "p.event_ts BETWEEN i.event_ts - INTERVAL 2 MINUTES AND i.event_ts + INTERVAL 10 MINUTES"
        return (
            shown.alias("i")
            .join(played.alias("p"), F.expr(f"i.id = p.id AND {within}"), how)
            .select("i.id", F.col("i.event_ts").alias("shown"), F.col("p.event_ts").alias("played"))
        )

    shape = shape_of(spark, plays, "shown")
    nulls_meet = [Operation.AS_STREAMED] if how == "fullOuter" else []
    assert [operator.kind for operator in shape.operators] == [Operation.JOIN, *nulls_meet]
    assert reaches(shape) == (2 * M, 10 * M)
    assert reaches(shape_of(spark, plays, "played")) == (10 * M, 2 * M)
    assert shape.delay == 20 * M
    assert shape.watermarks == {"a": 10 * M, "b": 20 * M}


@pytest.mark.parametrize(
    "condition",
    [
        "p.event_ts >= i.event_ts AND p.event_ts <= i.event_ts + INTERVAL 10 MINUTES",
        "p.event_ts - i.event_ts <= INTERVAL 10 MINUTES AND i.event_ts <= p.event_ts",
        "i.event_ts > p.event_ts - INTERVAL 10 MINUTES AND i.event_ts < p.event_ts",
        "i.day = p.day AND p.event_ts BETWEEN i.event_ts AND i.event_ts + INTERVAL 10 MINUTES",
    ],
)
def test_a_range_is_found_however_it_is_written(spark: SparkSession, condition: str) -> None:
    from pyspark.sql import functions as F

    def plays(a: DataFrame, b: DataFrame) -> DataFrame:
        shown, played = a.withWatermark("event_ts", "1 minute"), b.withWatermark("event_ts", "1 minute")
        return shown.alias("i").join(played.alias("p"), F.expr(f"i.id = p.id AND {condition}")).select("i.event_ts")

    assert reaches(shape_of(spark, plays)) == (0 * M, 10 * M)


def test_a_join_with_one_open_side_is_open(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def plays(a: DataFrame, b: DataFrame) -> DataFrame:
        joined = a.alias("i").join(b.alias("p"), F.expr("i.id = p.id AND p.event_ts >= i.event_ts"))
        return joined.select("i.event_ts")

    assert shape_of(spark, plays).has(Operation.OPEN_JOIN)


def test_chained_operators_add_up(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def hourly(a: DataFrame, b: DataFrame) -> DataFrame:
        shown, played = a.withWatermark("event_ts", "10 minutes"), b.withWatermark("event_ts", "10 minutes")
        joined = shown.alias("i").join(
            played.alias("p"),
            F.expr("i.id = p.id AND p.event_ts BETWEEN i.event_ts AND i.event_ts + INTERVAL 10 MINUTES"), "leftOuter",
        )  # fmt: skip
        fives = joined.select("i.event_ts", "i.show").groupBy(F.window("event_ts", "5 minutes"), "show").count()
        hours = fives.groupBy(F.window(F.window_time("window"), "1 hour")).agg(F.sum("count").alias("n"))
        return hours.select(F.col("window.start").alias("hour"), "n")

    shape = shape_of(spark, hourly, "hour")
    assert [operator.kind for operator in shape.operators] == [Operation.JOIN, Operation.WINDOW, Operation.WINDOW]
    assert shape.span is not None
    # an hour of five-minute windows by their ends, and joins that reach ten minutes on
    assert shape.span.after.length >= 70 * M - timedelta(milliseconds=1)
    assert timedelta(minutes=5) - timedelta(milliseconds=1) <= shape.span.before.length <= 5 * M


def test_dedups_are_told_apart(spark: SparkSession) -> None:
    def rows(a: DataFrame) -> DataFrame:
        return a.withWatermark("event_ts", "1 minute").select("id", "event_ts").dropDuplicates()

    def timed(a: DataFrame) -> DataFrame:
        return a.withWatermark("event_ts", "1 minute").dropDuplicates(["id", "event_ts"])

    def forever(a: DataFrame) -> DataFrame:
        return a.withWatermark("event_ts", "1 minute").dropDuplicates(["id"])

    def within(a: DataFrame) -> DataFrame:
        return a.withWatermark("event_ts", "1 minute").dropDuplicatesWithinWatermark(["id"])

    kinds = [shape_of(spark, body).operators[0].kind for body in (rows, timed, forever, within)]
    assert kinds == [Operation.WHOLE_ROW_DEDUP, Operation.TIMED_DEDUP, Operation.OPEN_DEDUP, Operation.DEDUP_WITHIN]


def test_aggregates_without_a_window_and_custom_state(spark: SparkSession) -> None:
    import pandas as pd
    from pyspark.sql import functions as F

    def totals(a: DataFrame) -> DataFrame:
        return a.groupBy("show").count()

    def by_time(a: DataFrame) -> DataFrame:
        return a.withWatermark("event_ts", "1 minute").groupBy("event_ts").agg(F.max("id"), F.first("v"))

    def custom(a: DataFrame) -> DataFrame:
        def keep(key: Any, frames: Any, state: Any) -> Any:
            yield pd.DataFrame()

        return a.groupBy("id").applyInPandasWithState(
            keep, "id LONG, event_ts TIMESTAMP", "n LONG", "append", "NoTimeout"
        )

    assert shape_of(spark, totals, None, "update").operators[0].kind is Operation.AGGREGATE
    assert shape_of(spark, by_time).has(Operation.TIME_GROUP, Operation.ORDER_SENSITIVE)
    shape = shape_of(spark, custom)
    assert shape.has(Operation.CUSTOM)
    assert shape.span is None
    assert set(shape.columns["a"]) >= {"id", "show", "event_ts", "v", "__metadata__"}


def test_transform_with_state_is_custom(spark: SparkSession) -> None:
    from pyspark.sql.streaming import StatefulProcessor

    class Keep(StatefulProcessor):
        def init(self, handle: Any) -> None: ...

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            yield from ()

        def close(self) -> None: ...

    def custom(a: DataFrame) -> DataFrame:
        return (
            a.withWatermark("event_ts", "1 minute")
            .groupBy("id")
            .transformWithStateInPandas(Keep(), "id LONG, event_ts TIMESTAMP", "append", "EventTime")
        )

    assert shape_of(spark, custom).has(Operation.CUSTOM)


def test_the_clock_and_chance_are_named(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    dice = F.udf(lambda x: x, "long").asNondeterministic()

    def risky(a: DataFrame) -> DataFrame:
        return a.select("event_ts", F.current_timestamp(), F.current_date(), F.rand(), F.expr("uuid()"), dice("id"))

    shape = shape_of(spark, risky)
    assert shape.clock == ("current_date()", "current_timestamp()")
    assert shape.random[:2] == ("rand()", "uuid()")
    assert "marked nondeterministic" in shape.random[2]
    assert "marked nondeterministic" in shape.of(Operation.UNKNOWN)[0].detail


def test_a_union_and_a_static_table(spark: SparkSession) -> None:
    spark.range(5).withColumnRenamed("id", "show").createOrReplaceTempView("shows_static")

    def both(a: DataFrame, b: DataFrame) -> DataFrame:
        return (
            a.select("show", "event_ts").union(b.select("show", "event_ts")).join(spark.table("shows_static"), "show")
        )

    shape = shape_of(spark, both)
    assert not shape.stateful
    assert reaches(shape) == (0 * M, 0 * M)
    assert shape.columns == {"a": ("show", "event_ts"), "b": ("show", "event_ts")}


def test_the_reference_apps(spark: SparkSession) -> None:
    from rekappa.config.bind import load_app
    from rekappa.config.load import load
    from rekappa.plan.margins import derive
    from rekappa.plan.mode import choose
    from rekappa.plan.plan import Mode
    from rekappa.sources.decode import record_type

    chosen = {}
    for name in ("take_rate", "sessions"):
        loaded = load(EXAMPLES / name)
        sources = loaded.config.sources
        schemas = {key: record_type(source, loaded.folder) for key, source in sources.items()}
        for job in load_app(loaded).jobs.values():
            sinks = {output: loaded.config.sinks[output].event_time for output in job.outputs}
            shapes = list(analyse(spark, job, schemas, sinks).values())
            chosen[job.name] = (choose(job.name, shapes).mode, derive(shapes, M).drain_reason)
    assert chosen["plays_per_impression"] == (Mode.BULK, "10m join range + 10m watermark")
    assert chosen["take_rate"] == (Mode.BULK, "10m join range + 10m window + 10m watermark")
    assert chosen["sessions"][0] is Mode.BULK


def test_every_time_is_traced_to_the_columns_that_it_is_read_from(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def expiring(a: DataFrame) -> DataFrame:
        windows = a.withWatermark("expires_at", "1 minute").groupBy(F.window("expires_at", "1 hour")).count()
        return windows.select(F.col("window.end").alias("until"), "count")

    def renamed(a: DataFrame) -> DataFrame:
        return a.select(F.col("inner").alias("i")).select((F.col("i.deep.ts") + F.expr("INTERVAL 1 HOUR")).alias("t"))

    def daily(a: DataFrame) -> DataFrame:
        return a.select(F.to_date("event_ts").alias("on"), "__metadata__.kafka_ingestion_ts")

    def parsed(a: DataFrame) -> DataFrame:
        return a.withColumn("t", F.to_timestamp(F.concat("v", F.lit("Z")))).withWatermark("t", "1 minute").select("t")

    def both(a: DataFrame, b: DataFrame) -> DataFrame:
        first, second = a.withWatermark("event_ts", "1 minute"), b.withWatermark("expires_at", "1 minute")
        within = "p.expires_at BETWEEN i.event_ts AND i.event_ts + INTERVAL 10 MINUTES"
        return first.alias("i").join(second.alias("p"), F.expr(f"i.id = p.id AND {within}")).select("i.event_ts")

    def anchors(body: Callable[..., Any], event_time: str) -> set[tuple[str, str]]:
        return {(anchor.source, anchor.column) for anchor in shape_of(spark, body, event_time).anchors}

    assert anchors(expiring, "until") == {("a", "expires_at")}
    assert anchors(renamed, "t") == {("a", "inner.deep.ts")}
    assert reaches(shape_of(spark, renamed, "t")) == (60 * M, -60 * M)
    assert anchors(daily, "on") == {("a", "event_ts")}
    assert reaches(shape_of(spark, daily, "on")) == (0 * M, timedelta(days=1))
    assert anchors(daily, "kafka_ingestion_ts") == {("a", "__metadata__.kafka_ingestion_ts")}
    assert anchors(parsed, "t") == {("a", "v")}
    assert anchors(both, "event_ts") == {("a", "event_ts"), ("b", "expires_at")}
    assert reaches(shape_of(spark, both)) == (0 * M, 10 * M)


def test_a_join_bounded_by_the_start_and_the_end_of_a_window(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def busy(a: DataFrame, b: DataFrame) -> DataFrame:
        counts = a.withWatermark("event_ts", "1 minute").groupBy(F.window("event_ts", "5 minutes"), "show").count()
        played = b.withWatermark("event_ts", "1 minute")
        within = "p.event_ts BETWEEN w.window.start AND w.window.end"
        joined = played.alias("p").join(counts.alias("w"), F.expr(f"p.show = w.show AND {within}"))
        return joined.select("p.event_ts", F.col("w.window.start").alias("began"), "count")

    def renamed(a: DataFrame, b: DataFrame) -> DataFrame:
        counts = a.withWatermark("event_ts", "1 minute").groupBy(F.window("event_ts", "5 minutes"), "show").count()
        counts = counts.select("show", F.col("window.start").alias("began"), F.col("window.end").alias("ended"))
        within = "p.event_ts >= w.began AND p.event_ts < w.ended"
        played = b.withWatermark("event_ts", "1 minute")
        return played.alias("p").join(counts.alias("w"), F.expr(f"p.show = w.show AND {within}")).select("p.event_ts")

    for body in (busy, renamed):
        shape = shape_of(spark, body)
        assert [operator.kind for operator in shape.operators] == [Operation.WINDOW, Operation.JOIN]
        # A play at t has a window that began up to five minutes before it, and ends up to five minutes after it.
        assert reaches(shape) == (5 * M, 5 * M)
    assert reaches(shape_of(spark, busy, "began")) == (0 * M, 5 * M)


def test_a_named_part_of_a_sql_query_is_looked_into(spark: SparkSession) -> None:
    def named(a: DataFrame) -> DataFrame:
        a.withWatermark("event_ts", "1 minute").createOrReplaceTempView("probe_events")
        return spark.sql(
            "WITH shown AS (SELECT show, event_ts FROM probe_events WHERE id > 2) "
            "SELECT window.start AS began, count(*) AS n FROM shown GROUP BY window(event_ts, '5 minutes')"
        )

    shape = shape_of(spark, named, "began")
    assert [operator.kind for operator in shape.operators] == [Operation.WINDOW]
    assert reaches(shape) == (0 * M, 5 * M)
    assert shape.anchors == (Anchor("a", "event_ts"),)


def test_sources_whose_names_lie_in_one_another(spark: SparkSession) -> None:
    def nested(data: DataFrame, a: DataFrame, ata: DataFrame) -> DataFrame:
        first = data.select("id", "event_ts").union(ata.select("show", "expires_at"))
        return first.union(a.select("show", "event_ts"))

    shape = shape_of(spark, nested)
    assert shape.columns == {"data": ("id", "event_ts"), "ata": ("show", "expires_at"), "a": ("show", "event_ts")}
    assert shape.anchors == (Anchor("a", "event_ts"), Anchor("ata", "expires_at"), Anchor("data", "event_ts"))


def test_static_data_is_named_by_where_it_is(spark: SparkSession, tmp_path: Path) -> None:
    where = tmp_path / "shows"
    spark.range(5).withColumnRenamed("id", "show").write.parquet(str(where))
    spark.read.parquet(str(where)).createOrReplaceTempView("shows_of_file")

    def joined(a: DataFrame) -> DataFrame:
        return a.join(spark.read.parquet(str(where)), "show")

    def asked(a: DataFrame) -> DataFrame:
        return a.where("show IN (SELECT show FROM shows_of_file)")

    def made(a: DataFrame) -> DataFrame:
        return a.join(spark.createDataFrame([(1, "x")], "show LONG, name STRING"), "show")

    assert shape_of(spark, joined).static == (str(where),)
    assert shape_of(spark, asked).static == (str(where),)
    assert shape_of(spark, made).static == ()
