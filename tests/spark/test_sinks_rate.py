"""Caps in real tasks, and staging's life."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from sink_rows import content, rows

from rekappa import rate_limit
from rekappa.errors import ConfigError, SinkError
from rekappa.sinks.contract import BatchId
from rekappa.sinks.registry import open_sink
from rekappa.staging.tables import drop_staging, list_staging, staging_sink, staging_table
from rekappa.tokens import passed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rekappa.config.model import AppConfig
    from rekappa.home import Home


def test_without_a_cap_the_query_is_the_same(spark: SparkSession) -> None:
    frame = spark.range(10)
    assert rate_limit(frame, None) is frame


def test_all_tasks_pass_one_cap_and_every_row_comes_through(spark: SparkSession) -> None:
    frame = rows(spark, 0, 3000).repartition(4)
    limited = rate_limit(frame, 20_000, "contract")
    assert limited.schema == frame.schema
    assert content(limited) == content(frame)
    assert passed("contract") == 3000
    with pytest.raises(ConfigError, match="Cannot limit 'job' to 0 rows per second"):
        rate_limit(frame, 0)


def test_a_sink_passes_its_own_cap_and_the_runs(spark: SparkSession, bare_config: AppConfig, home: Home) -> None:
    capped = bare_config.sinks["out"].model_copy(update={"max_rows_per_second": 50_000.0})
    config = bare_config.with_sinks({"out": capped})
    before = passed("run")
    sink = open_sink("out", config, home, run_cap=60_000.0)
    sink.write(rows(spark, 0, 500), BatchId("run-1", "query", 0))
    assert passed("sink out") == 500
    assert passed("run") - before == 500


def test_staging_is_listed_and_dropped(spark: SparkSession, bare_config: AppConfig) -> None:
    sink = staging_sink(bare_config, "run-9", "out")
    frame = rows(spark, 0, 30)
    sink.prepare(spark, frame.schema)
    for _ in range(2):
        sink.write(frame, BatchId("run-9", "out", 0))
    (found,) = [one for one in list_staging(spark, bare_config) if one.run == "run-9"]
    assert (found.table, found.app, found.sink, found.kind, found.rows) == (
        staging_table(bare_config, "run-9", "out"), "bare", "out", "staging", 30,
    )  # fmt: skip
    assert not found.expired(timedelta(hours=1), datetime.now(UTC))
    with pytest.raises(SinkError, match="column id is string in the rows and bigint in the table"):
        sink.prepare(spark, frame.withColumn("id", frame.id.cast("string")).schema)
    drop_staging(spark, found)
    assert not [one for one in list_staging(spark, bare_config) if one.run == "run-9"]
    with pytest.raises(SinkError, match="does not exist"):
        sink.read(spark)
