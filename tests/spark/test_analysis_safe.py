"""What is known to be the same in any order, and what is refused: read from Spark's plan, without running anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from shapes import shape_of

from rekappa.errors import AppError
from rekappa.plan.shape import Anchor, Operation, Tolerance
from rekappa.rate import rate_limit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIES, ROUNDED, SHUFFLED = {Operation.ORDER_SENSITIVE}, Tolerance.ROUNDING, Tolerance.ORDER


@pytest.mark.parametrize(
    ("value", "tolerance", "kinds"),
    [
        ("sum(id)", None, set()),
        ("sum(CAST(x AS DECIMAL(10, 2)))", None, set()),
        ("sum(x)", ROUNDED, set()),
        ("round(avg(id) + 1)", ROUNDED, set()),
        ("max(struct(event_ts, v)).v", None, set()),
        ("approx_count_distinct(v)", None, set()),
        ("percentile(x, 0.5)", None, set()),
        ("median(x)", None, set()),
        ("stddev(x)", ROUNDED, set()),
        ("count_if(id > 3)", None, set()),
        ("count(*) FILTER (WHERE id > 3)", None, set()),
        ("collect_set(v)", SHUFFLED, set()),
        ("sort_array(collect_list(v))", None, set()),
        ("array_sort(collect_list(v))", None, set()),
        ("collect_list(v)", SHUFFLED, TIES),
        ("array_agg(v)", SHUFFLED, TIES),
        ("concat_ws(',', collect_set(v))", None, TIES),
        ("max_by(v, event_ts)", None, TIES),
        ("min_by(v, event_ts)", None, TIES),
        ("first(v)", None, TIES),
        ("any_value(v)", None, TIES),
        ("mode(v)", None, TIES),
        ("percentile_approx(x, 0.5)", None, TIES),
        ("max(collate(v, 'UTF8_LCASE'))", None, TIES),
        ("schema_of_variant_agg(parse_json(v))", None, TIES | {Operation.UNKNOWN}),
    ],
)
def test_aggregates_that_do_and_do_not_depend_on_order(
    spark: SparkSession, value: str, tolerance: Tolerance | None, kinds: set[Operation]
) -> None:
    from pyspark.sql import functions as F

    def hourly(a: DataFrame) -> DataFrame:
        hours = a.withWatermark("event_ts", "1 minute").groupBy(F.window("event_ts", "1 hour"))
        return hours.agg(F.expr(value).alias("value")).select(F.col("window.start").alias("hour"), "value")

    shape = shape_of(spark, hourly, "hour")
    assert {operator.kind for operator in shape.operators} - {Operation.WINDOW} == kinds
    assert shape.tolerances == ({"value": tolerance} if tolerance else {})


def test_what_hands_rows_to_code_in_batches_is_not_known_to_be_safe(spark: SparkSession) -> None:
    from collections.abc import Iterator

    import pandas as pd
    from pyspark.sql import functions as F

    def slowly(parts: Iterator[pd.Series]) -> Iterator[pd.Series]:
        yield from parts

    # PySpark reads the types themselves, which are text in this module.
    slowly.__annotations__ = {"parts": Iterator[pd.Series], "return": Iterator[pd.Series]}
    iterating = F.pandas_udf(slowly, "double")  # type: ignore[call-overload]
    rowwise = F.udf(lambda number: number, "long")
    bodies: dict[str, Callable[[DataFrame], DataFrame]] = {
        "mapInPandas": lambda a: a.select("id", "event_ts").mapInPandas(lambda it: it, "id LONG, event_ts TIMESTAMP"),
        "mapInArrow": lambda a: a.select("id", "event_ts").mapInArrow(lambda it: it, "id LONG, event_ts TIMESTAMP"),
        "applyInPandas": lambda a: (
            a.select("id", "event_ts").groupBy("id").applyInPandas(lambda p: p, "id LONG, event_ts TIMESTAMP")
        ),
        "InputFileName": lambda a: a.select("event_ts", F.input_file_name()),
        "slowly": lambda a: a.select("event_ts", iterating("x")),
        "lambda": lambda a: a.select("event_ts", rowwise("id")),
    }
    found = {}
    for name, made in bodies.items():

        def body(a: DataFrame, made: Callable[[DataFrame], DataFrame] = made) -> DataFrame:
            return made(a)

        found[name] = " ".join(operator.detail for operator in shape_of(spark, body).of(Operation.UNKNOWN))
    assert found.pop("lambda") == ""
    assert all(name in words for name, words in found.items()), found


def test_what_leaves_every_row_as_it_is_is_known(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def plain(a: DataFrame) -> DataFrame:
        kept = a.hint("broadcast").repartition(3).coalesce(1).repartition(2, "id").observe("seen", F.count("*"))
        made = rate_limit(kept, 500).withColumn("n", F.explode(F.sequence(F.lit(1), F.lit(3)))).na.fill(0).drop("x")
        made.createOrReplaceTempView("probe_plain")
        return spark.sql(
            "SELECT p.id, event_ts, l.word, CASE WHEN n > 1 THEN upper(v) ELSE date_format(day, 'yyyy') END AS c "
            "FROM probe_plain p LATERAL VIEW explode(split(v, ' ')) l AS word "
            "WHERE id IN (SELECT id FROM range(9)) AND show < (SELECT max(id) FROM range(5))"
        )

    def totals(a: DataFrame) -> DataFrame:
        days = a.withWatermark("event_ts", "1 minute").groupBy(F.window("event_ts", "1 day"))
        return days.pivot("show", [1, 2]).agg(F.sum("id")).select("window.start", "1", "2")

    def rolled(a: DataFrame) -> DataFrame:
        return a.withWatermark("event_ts", "1 minute").rollup(F.window("event_ts", "1 day"), "show").count()

    def cubed(a: DataFrame) -> DataFrame:
        a.withWatermark("event_ts", "1 minute").createOrReplaceTempView("probe_cubed")
        return spark.sql(
            "SELECT window.start AS start, show, id, count(*) AS n FROM probe_cubed "
            "GROUP BY window(event_ts, '1 day'), GROUPING SETS ((show), (id), ())"
        )

    assert "total over all of time" in shape_of(spark, rolled, "window.start").of(Operation.UNKNOWN)[0].detail
    assert not shape_of(spark, cubed, "start").has(Operation.UNKNOWN)
    assert shape_of(spark, plain).operators == ()
    assert shape_of(spark, plain).anchors == (Anchor("a", "event_ts"),)
    assert not shape_of(spark, totals, "start").has(Operation.UNKNOWN, Operation.ORDER_SENSITIVE)


def test_the_clock_in_custom_state_is_found(spark: SparkSession) -> None:
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    class Plain(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.seen = handle.getValueState("seen", "n LONG")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            yield from ()

        def close(self) -> None: ...

    class Expiring(Plain):
        def init(self, handle: Any) -> None:
            self.seen = handle.getMapState("seen", "k LONG", "n LONG", ttlDurationMs=60_000)
            self.seen.iterator().nothing()

    class Asking(Plain):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            yield from (timerValues.getCurrentProcessingTimeInMs() for _ in rows)

    def keep(key: Any, frames: Any, state: Any) -> Any:
        yield pd.DataFrame()

    def with_state(processor: Any, mode: str) -> Callable[[DataFrame], DataFrame]:
        def body(a: DataFrame) -> DataFrame:
            watermarked = a.withWatermark("event_ts", "1 minute").groupBy("id")
            return watermarked.transformWithState(
                statefulProcessor=processor,
                outputStructType="id LONG, event_ts TIMESTAMP",
                outputMode="append",
                timeMode=mode,
            )

        return body

    def timeout(a: DataFrame) -> DataFrame:
        return a.groupBy("id").applyInPandasWithState(
            keep, "id LONG, event_ts TIMESTAMP", "n LONG", "append", "ProcessingTimeTimeout"
        )

    assert shape_of(spark, with_state(Plain(), "EventTime")).clock == ()
    assert shape_of(spark, with_state(Plain(), "ProcessingTime")).clock == ("processing-time timers (Plain)",)
    assert shape_of(spark, with_state(Expiring(), "EventTime")).clock == ("TTL of state 'seen' (Expiring)",)
    assert shape_of(spark, with_state(Asking(), "None")).clock == ("getCurrentProcessingTimeInMs() (Asking)",)
    assert shape_of(spark, timeout).clock == ("processing-time timeout (keep)",)


def test_what_spark_would_not_run_as_a_stream_is_refused_in_its_words(spark: SparkSession) -> None:
    import pandas as pd
    from pyspark.sql import functions as F

    def ranked(a: DataFrame) -> DataFrame:
        a.createOrReplaceTempView("probe_ranked")
        return spark.sql(
            "SELECT event_ts, row_number() OVER (PARTITION BY id ORDER BY event_ts) AS n FROM probe_ranked"
        )

    def totals(a: DataFrame) -> DataFrame:
        return a.groupBy("show").count()

    def average(values: pd.Series) -> float:
        return float(values.mean())

    average.__annotations__ = {"values": pd.Series, "return": float}

    def asked(a: DataFrame, b: DataFrame) -> DataFrame:
        a.createOrReplaceTempView("probe_left")
        b.createOrReplaceTempView("probe_right")
        return spark.sql("SELECT * FROM probe_left l WHERE EXISTS (SELECT 1 FROM probe_right r WHERE l.id = r.id)")

    def averages(a: DataFrame) -> DataFrame:
        hours = a.withWatermark("event_ts", "1 minute").groupBy(F.window("event_ts", "1 hour"))
        return hours.agg(F.pandas_udf(average, "double")("x"))  # type: ignore[call-overload]

    def own(a: DataFrame) -> DataFrame:
        return a.select("event_ts").union(spark.readStream.format("rate").load().select("timestamp"))

    with pytest.raises(AppError, match=r"(?i)window") as refusal:
        shape_of(spark, ranked)
    assert refusal.value.hint
    with pytest.raises(AppError, match="watermark") as refusal:
        shape_of(spark, totals, None)
    assert "update" in str(refusal.value.hint)
    assert shape_of(spark, totals, None, "update").has(Operation.AGGREGATE)
    with pytest.raises(AppError, match="average is an aggregate in Python"):
        shape_of(spark, averages, None)
    with pytest.raises(AppError, match="none of its sources"):
        shape_of(spark, own)
    with pytest.raises(AppError, match="not allowed in subquery"):
        shape_of(spark, asked)


def test_a_second_watermark_is_refused_as_spark_refuses_it_later(spark: SparkSession, tmp_path: Path) -> None:
    def again(a: DataFrame) -> DataFrame:
        return a.withWatermark("event_ts", "1 minute").where("id > 1").withWatermark("event_ts", "1 hour")

    def each(a: DataFrame, b: DataFrame) -> DataFrame:
        return a.withWatermark("event_ts", "1 minute").union(b.withWatermark("event_ts", "1 hour"))

    with pytest.raises(AppError, match="sets a watermark where there is one already"):
        shape_of(spark, again, None)
    shape_of(spark, each, None)
    setting = "spark.sql.streaming.statefulOperator.allowMultiple"
    spark.conf.set(setting, "false")
    try:
        shape_of(spark, again, None)
    finally:
        spark.conf.unset(setting)

    spark.sql("SELECT id, TIMESTAMP '2026-11-01 00:00:00' AS t FROM range(3)").write.parquet(str(tmp_path / "rows"))
    one = spark.readStream.schema("id BIGINT, t TIMESTAMP").parquet(str(tmp_path / "rows")).withWatermark("t", "1 hour")
    query = (
        one.where("id > 1").withWatermark("t", "2 hours").writeStream.format("noop").trigger(availableNow=True).start()
    )
    with pytest.raises(Exception, match="Redefining watermark is disallowed"):
        query.awaitTermination()


def test_a_sinks_event_time_is_a_time(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def numbers(a: DataFrame) -> DataFrame:
        return a.select("id", "day", "inner")

    def windows(a: DataFrame) -> DataFrame:
        return a.withWatermark("event_ts", "1 minute").groupBy(F.window("event_ts", "1 hour")).count()

    with pytest.raises(AppError, match="it is a BIGINT"):
        shape_of(spark, numbers, "id")
    with pytest.raises(AppError) as refusal:
        shape_of(spark, windows, "window")
    assert "window.start" in str(refusal.value.hint)
    assert shape_of(spark, numbers, "day").span is not None
    assert shape_of(spark, numbers, "inner.deep.ts").anchors == (Anchor("a", "inner.deep.ts"),)


NOT_SAFE = {
    "current_catalog", "current_database", "current_schema", "current_user", "session_user", "user", "version",
    "input_file_name", "input_file_block_start", "input_file_block_length", "java_method", "reflect", "try_reflect",
    "kll_sketch_merge_bigint", "kll_sketch_merge_double", "kll_sketch_merge_float", "schema_of_variant_agg",
    "collations", "sql_keywords",
    "cume_dist", "dense_rank", "lag", "lead", "nth_value", "ntile", "percent_rank", "rank", "row_number",
}  # fmt: skip
"""Functions of Spark 4.1 that are left out of the lists on purpose."""


def test_every_function_of_this_spark_is_classified(spark: SparkSession) -> None:
    """Spark's own examples of each function are analysed: a function that is new, or new in its class, shows here."""
    import re

    from rekappa.spark.plans.functions import AGGREGATES, CLOCK, RANDOM, is_known
    from rekappa.spark.plans.tree import parse

    java: Any = spark._jsparkSession
    jvm: Any = spark._jvm
    catalog = java.sessionState().catalog()
    unknown: dict[str, set[str]] = {}
    wrongly_safe, seen = set(), set()
    for (name,) in spark.sql("SHOW SYSTEM FUNCTIONS").collect():
        try:
            info = catalog.lookupFunctionInfo(jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name))
            examples = re.findall(r"> (SELECT .*?);", info.getExamples() or "", re.DOTALL)
        except Exception:  # An operator of the grammar, which is no function of its own.
            continue
        for example in examples:
            try:
                analysed = spark.sql(example)._jdf.queryExecution().analyzed()
            except Exception:  # Some examples are errors on purpose, some need a file.
                continue
            seen.add(name)
            parts = [part for node in parse(analysed.toJSON()).walk() for part in node.all_expressions()]
            unknown.setdefault(name, set()).update(part.name for part in parts if not is_known(part))
            chance = {part.name for part in parts} & {*CLOCK, *RANDOM, *AGGREGATES}
            if not analysed.deterministic() and not chance and not unknown[name]:
                wrongly_safe.add(name)
    assert len(seen) > 450
    assert not wrongly_safe
    assert {name: parts for name, parts in unknown.items() if parts and name not in NOT_SAFE} == {}
    assert {name for name in NOT_SAFE & seen if not unknown[name]} == set()
