"""The suite that every sink passes: a subclass names its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F
from sink_rows import KEYED, KILLED_ROWS, ODD, content, rows
from sinks_until_killed import BATCH

from rekappa.errors import SinkError
from rekappa.sinks.contract import BatchId, Rerun
from rekappa.sinks.registry import open_sink
from rekappa.spark.private import observed
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rekappa.config.model import AppConfig
    from rekappa.home import Home

FIRST_HALF_HOUR = Window.parse("2026-11-01T08:00Z", "2026-11-01T08:30Z")


class SinkContract:
    kind: ClassVar[str]
    rerun: ClassVar[Rerun]
    observable: ClassVar[bool] = True
    """Whether Spark tells what it observes in a write; it does not of one to Kafka."""

    def test_batches_are_written_once_whoever_retries(
        self, spark: SparkSession, sink_config: AppConfig, home: Home
    ) -> None:
        first, second = (BatchId("run-1", "query", number) for number in (0, 1))
        expected = rows(spark, 0, 50)
        sink = open_sink(f"{self.kind}_story", sink_config, home)
        assert sink.rerun is self.rerun
        sink.prepare(spark, expected.schema)
        assert content(sink.read(spark)) == []
        sink.write(rows(spark, 0, 40), first)
        sink.write(rows(spark, 0, 40), first)
        # Another process knows nothing of what this one did.
        again = open_sink(f"{self.kind}_story", sink_config, home)
        again.prepare(spark, expected.schema)
        counted = Observation()
        again.write(rows(spark, 0, 40).observe(counted, F.count(F.lit(1)).alias("rows")), first)
        if self.observable:
            assert observed(counted), "computed all the same: a stateful query's state is made by that"
            assert counted.get == {"rows": 40}
        again.write(rows(spark, 40, 50), second)
        again.write(rows(spark, 0, 0), BatchId("run-1", "query", 2))
        stored = again.as_stored(expected)
        assert content(again.read(spark)) == content(stored)
        early = F.col("happened") < F.lit(FIRST_HALF_HOUR.end)
        assert content(again.read(spark, FIRST_HALF_HOUR)) == content(stored.where(early))
        assert 0 < stored.where(early).count() < 50

    def test_killed_in_mid_batch_and_retried(
        self, spark: SparkSession, sink_config: AppConfig, home: Home, killed: dict[str, int]
    ) -> None:
        assert 0 < killed[self.kind] < KILLED_ROWS
        batch = rows(spark, 0, KILLED_ROWS)
        sink = open_sink(f"{self.kind}_killed", sink_config, home)
        sink.prepare(spark, batch.schema)
        sink.write(batch, BATCH)
        assert content(sink.read(spark)) == content(sink.as_stored(batch))

    def test_rows_that_do_not_fit_are_refused_by_column(
        self, spark: SparkSession, sink_config: AppConfig, home: Home
    ) -> None:
        sink = open_sink(f"{self.kind}_keys", sink_config, home)
        with pytest.raises(SinkError, match="event_time names happened"):
            sink.prepare(spark, rows(spark, 0, 1).drop("happened").schema)


class EvolvingContract:
    """What sinks with a table promise besides: it follows its job, and loses nothing on the way.

    Of a bigint that was an int (`small`) and a wider decimal (`amount`): `widens` are those that the table can follow,
    `keeps_type` those that it can't.
    """

    kind: ClassVar[str]
    widens: ClassVar[frozenset[str]] = frozenset()
    keeps_type: ClassVar[frozenset[str]] = frozenset({"small", "amount"})

    def test_a_table_follows_its_job(self, spark: SparkSession, sink_config: AppConfig, home: Home) -> None:
        sink = open_sink(f"{self.kind}_evolved", sink_config, home)
        first, gained = rows(spark, 0, 10).drop("note", "even"), rows(spark, 10, 20)
        assert sink.changes(spark, gained.schema).fits, "there is no table yet"
        sink.prepare(spark, first.schema)
        sink.write(first, BatchId("run-1", "query", 0))
        needed = sink.changes(spark, gained.schema)
        assert [(step.column, step.was) for step in needed.steps] == [("even", None), ("note", None)]
        with pytest.raises(SinkError, match=r"it would have to add column even \(boolean\)"):
            sink.prepare(spark, gained.schema)
        sink.evolve(spark, needed.steps)
        sink.evolve(spark, needed.steps)
        assert sink.changes(spark, gained.schema).fits
        sink.prepare(spark, gained.schema)
        sink.write(gained, BatchId("run-1", "query", 1))
        expected = first.unionByName(gained, allowMissingColumns=True)
        assert content(sink.read(spark)) == content(sink.as_stored(expected))

        wider = rows(spark, 20, 25).withColumns(
            {"small": F.col("small").cast("bigint"), "amount": F.col("amount").cast("decimal(14, 2)")}
        )
        found = sink.changes(spark, wider.schema)
        assert {step.column for step in found.steps} == self.widens
        assert {text.split()[1] for text in found.stuck} == self.keeps_type
        retyped = sink.changes(spark, gained.withColumn("even", F.lit("yes")).schema)
        assert [text.split()[1] for text in retyped.stuck] == ["even"]
        if not found.stuck:
            sink.evolve(spark, found.steps)
            sink.prepare(spark, wider.schema)
            sink.write(wider, BatchId("run-1", "query", 2))
            assert content(sink.read(spark)) == content(sink.as_stored(expected.unionByName(wider)))


class KeyedContract(EvolvingContract, SinkContract):
    """What sinks that upsert promise besides."""

    rerun = Rerun.IDEMPOTENT

    def test_keys(self, spark: SparkSession, sink_config: AppConfig, home: Home) -> None:
        assert self.kind in KEYED
        sink = open_sink(f"{self.kind}_keys", sink_config, home)
        batch = rows(spark, 0, 20)
        sink.prepare(spark, batch.schema)
        sink.write(batch, BatchId("run-1", "query", 0))
        before = content(sink.read(spark))
        with pytest.raises(SinkError, match="key column id is null"):
            sink.write(batch.withColumn("id", F.when(F.col("id") != 7, F.col("id"))), BatchId("run-1", "query", 1))
        assert content(sink.read(spark)) == before
        older = batch.withColumn("happened", F.expr("happened - INTERVAL 1 HOUR")).withColumn("name", F.lit("old"))
        newer = batch.withColumn("happened", F.expr("happened + INTERVAL 1 HOUR")).withColumn("note", F.lit(None))
        sink.write(older.union(newer).union(batch), BatchId("run-1", "query", 2))
        assert content(sink.read(spark)) == content(sink.as_stored(newer))

    def test_rows_that_are_marked_remove_their_key(
        self, spark: SparkSession, sink_config: AppConfig, home: Home
    ) -> None:
        """The mark is not stored; one for a key that is not there changes nothing."""
        sink = open_sink(f"{self.kind}_deletes", sink_config, home)
        batch = rows(spark, 0, 20)
        marked = rows(spark, 5, 25).withColumn(
            "gone", F.expr("CASE WHEN id % 3 = 0 THEN true WHEN id % 3 = 1 THEN false END")
        )
        sink.prepare(spark, marked.schema)
        sink.write(batch.withColumn("gone", F.lit(False)), BatchId("run-1", "query", 0))
        for _ in range(2):
            sink.write(marked, BatchId("run-1", "query", 1))
            assert content(sink.read(spark)) == content(
                sink.as_stored(rows(spark, 0, 25).where("id < 5 OR id % 3 != 0"))
            )
        with pytest.raises(SinkError, match="deletes names gone, which is int"):
            sink.prepare(spark, marked.withColumn("gone", F.lit(1)).schema)

    def test_a_name_is_a_name(self, spark: SparkSession, sink_config: AppConfig, home: Home) -> None:
        sink = open_sink(f"{self.kind}_odd", sink_config, home)
        batch = rows(spark, 0, 20).withColumnsRenamed(ODD)
        sink.prepare(spark, batch.schema)
        sink.write(batch, BatchId("run-1", "query", 0))
        newer = batch.withColumn("happened", F.expr("happened + INTERVAL 1 HOUR")).withColumn("note", F.lit("new"))
        sink.write(newer.union(batch), BatchId("run-1", "query", 1))
        assert content(sink.read(spark)) == content(sink.as_stored(newer))
        keys = spark.createDataFrame([(3,), (5,)], f"`{ODD['id'].replace('`', '``')}` BIGINT")
        found = sink.rows_of(spark, keys)
        assert found is not None
        assert sorted(row["small"] for row in found.collect()) == [3, 5]
