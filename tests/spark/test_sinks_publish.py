"""Publishing a staged window to sinks other than Iceberg, and undoing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from sink_rows import content, rows

from rekappa.errors import PublishError
from rekappa.sinks.contract import BatchId, Effect
from rekappa.sinks.registry import open_sink
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rekappa.config.model import AppConfig
    from rekappa.home import Home

# Rows are a minute apart from 08:00 on: these are 10 to 39.
WINDOW = Window.parse("2026-11-01T08:10Z", "2026-11-01T08:40Z")


def staged_rows(spark: SparkSession) -> DataFrame:
    """The window made anew: 10 to 14 are gone, 15 to 19 differ, 1000 is new, the rest is as it was."""
    kept = rows(spark, 15, 40).withColumn("name", F.when(F.col("id") < 20, F.lit("fixed")).otherwise(F.col("name")))
    new = rows(spark, 30, 31).withColumn("id", F.lit(1000).cast("bigint"))
    return kept.union(new)


@pytest.mark.parametrize("kind", ["postgres", "cassandra", "opensearch"])
def test_a_keyed_sink_takes_the_window_and_gives_it_back(
    spark: SparkSession, sink_config: AppConfig, home: Home, kind: str
) -> None:
    sink: Any = open_sink(f"{kind}_published", sink_config, home)
    production, staged = rows(spark, 0, 60), staged_rows(spark)
    sink.prepare(spark, production.schema)
    sink.write(production, BatchId("live", "query", 0))
    expected = Effect(added=1, changed=5, removed=5, unchanged=20)
    assert sink.effect(spark, staged, WINDOW, "run-7") == expected
    assert content(sink.read(spark)) == content(sink.as_stored(production))

    assert sink.publish(spark, staged, WINDOW, "run-7") == expected
    outside = production.where("id < 10 OR id >= 40")
    published = content(sink.as_stored(outside.union(staged)))
    assert content(sink.read(spark)) == published
    assert sink.publish(spark, staged, WINDOW, "run-7") == Effect(0, 0, 0, unchanged=26)
    assert content(sink.read(spark)) == published

    # The live job goes on: a row of the window changes once more, and a new one comes.
    later = rows(spark, 16, 17).withColumn("note", F.lit("live")).union(rows(spark, 60, 61))
    sink.write(later, BatchId("live", "query", 1))
    undone = sink.undo(spark, staged, WINDOW, "run-7")
    assert undone == Effect(added=5, changed=4, removed=1, unchanged=20, kept=1)
    assert content(sink.read(spark)) == content(sink.as_stored(production.where("id != 16").union(later)))
    assert sink.undo(spark, staged, WINDOW, "run-7") == Effect(0, 0, 0)


def test_parquet_takes_the_rows_once_and_gives_them_back(
    spark: SparkSession, sink_config: AppConfig, home: Home
) -> None:
    sink: Any = open_sink("parquet_published", sink_config, home)
    production, staged = rows(spark, 0, 10), rows(spark, 10, 40)
    sink.prepare(spark, production.schema)
    sink.write(production, BatchId("live", "query", 0))
    assert sink.effect(spark, staged, WINDOW, "run-7") == Effect(30, 0, 0)
    for _ in range(2):
        sink.publish(spark, staged, WINDOW, "run-7")
        assert content(sink.read(spark)) == content(rows(spark, 0, 40))
    sink.undo(spark, staged, WINDOW, "run-7")
    assert content(sink.read(spark)) == content(production)


def test_kafka_takes_the_rows_once_and_says_whose_they_are(
    spark: SparkSession, sink_config: AppConfig, home: Home, broker: str
) -> None:
    sink: Any = open_sink("kafka_published", sink_config, home)
    staged = rows(spark, 10, 40)
    sink.prepare(spark, staged.schema)
    for _ in range(2):
        sink.publish(spark, staged, WINDOW, "run-7")
    assert content(sink.read(spark)) == content(staged)
    loaded = spark.read.format("kafka").option("kafka.bootstrap.servers", broker).option("subscribe", sink.topic)
    messages = loaded.option("includeHeaders", "true").load().select("key", "headers").collect()
    assert {bytes(one.key).decode() for one in messages} == {str(number) for number in range(10, 40)}
    said = {tuple((header.key, bytes(header.value).decode()) for header in one.headers) for one in messages}
    assert said == {(("rekappa-run", "run-7"), ("rekappa-query", "publish"), ("rekappa-batch", "0"))}
    with pytest.raises(PublishError, match="what was sent stays"):
        sink.undo(spark, staged, WINDOW, "run-7")


def test_a_postgres_table_without_a_unique_key_is_refused(
    spark: SparkSession, sink_config: AppConfig, home: Home
) -> None:
    from dataclasses import replace

    from rekappa.errors import SinkError

    service: Any = open_sink("postgres_keys", sink_config, home)
    bare = replace(service.service, table="bare")
    with bare._connect() as connection:
        connection.execute("CREATE TABLE bare (id BIGINT)")
    with pytest.raises(SinkError, match="no unique constraint on"):
        bare.prepare(spark.range(1).schema)
    with pytest.raises(SinkError, match="Cannot reach PostgreSQL") as caught:
        replace(bare, password="hush-hush").prepare(spark.range(1).schema)
    assert "hush-hush" not in str(caught.value)
