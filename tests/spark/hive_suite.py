"""The sink suite for Hive; run by test_sinks.py in a process of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from publishing import part, publish, undo
from sink_contract import EvolvingContract, SinkContract
from sink_rows import content, rows, sinks_config
from test_sinks_publish import staged_rows

from rekappa.checkpoints.restarts import Leg
from rekappa.config.model import AppConfig
from rekappa.home import Home
from rekappa.publish.publishers.hive import HivePublisher
from rekappa.recovery.resets.contract import Abandoned
from rekappa.recovery.resets.files import HiveReset
from rekappa.sinks.contract import BatchId, Rerun
from rekappa.sinks.hive import HiveSink
from rekappa.sinks.registry import open_sink
from rekappa.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def home() -> Home:
    return Home(Path(os.environ["SINKS_HOME"]))


@pytest.fixture(scope="session")
def sink_config(home: Home) -> AppConfig:
    return sinks_config(json.loads((home.root / "servers.json").read_text()), hive=True)


@pytest.fixture(scope="session")
def spark(sink_config: AppConfig, home: Home) -> Iterator[SparkSession]:
    session = open_session(sink_config, "live", home, **{"spark.master": "local[2]"})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def killed() -> dict[str, int]:
    return {"hive": int(os.environ["SINKS_KILLED"])}


class TestHive(EvolvingContract, SinkContract):
    kind, rerun = "hive", Rerun.RESETTABLE


def test_hive_takes_the_window_and_gives_it_back(spark: SparkSession, sink_config: AppConfig, home: Home) -> None:
    sink = open_sink("hive_published", sink_config, home)
    assert isinstance(sink, HiveSink)
    production, staged = rows(spark, 0, 60), staged_rows(spark)
    sink.prepare(spark, production.schema)
    sink.write(production, BatchId("live", "query", 0))
    it = HivePublisher(part(sink_config, sink.name, staged), "hive", sink)
    effect = publish(it)
    assert (effect.added, effect.removed, effect.unchanged) == (6, 10, 20)
    assert effect.partitions == ("day=2026-11-01", "day=2026-11-02", "day=2026-11-03")
    outside = production.where("id < 10 OR id >= 40")
    assert content(sink.read(spark)) == content(outside.union(staged))
    sink.write(rows(spark, 60, 65), BatchId("live", "query", 1))
    undo(it)
    assert content(sink.read(spark)) == content(rows(spark, 0, 65))
    publish(it)
    assert content(sink.read(spark)) == content(outside.union(staged).union(rows(spark, 60, 65)))


def test_hive_takes_abandoned_batches_out_by_the_names_of_files(
    spark: SparkSession, sink_config: AppConfig, home: Home
) -> None:
    sink = open_sink("hive_rewound", sink_config, home)
    assert isinstance(sink, HiveSink)
    sink.prepare(spark, rows(spark, 0, 1).schema)
    for number in range(3):
        sink.write(rows(spark, 20 * number, 20 * (number + 1)), BatchId("live", "query", number))
    sink.write(rows(spark, 60, 65), BatchId("live", "another", 2))
    since = datetime(2026, 1, 1, tzinfo=UTC)
    gone = Abandoned(spark, "app", "newer", sink.name, "hive", "query", (Leg("live", 0, None),), ("live",), since)
    way = HiveReset(gone, sink)
    assert way.look().removed == 40
    for _ in range(2):
        way.carry_out()
        assert content(sink.read(spark)) == content(rows(spark, 0, 20).union(rows(spark, 60, 65)))
    sink.write(rows(spark, 100, 120), BatchId("newer", "query", 1))
    for _ in range(2):
        way.undo()
        assert content(sink.read(spark)) == content(rows(spark, 0, 65))
