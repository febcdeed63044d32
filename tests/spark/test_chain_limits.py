"""Two chained jobs where it is hard to tell what the second has read of what the first takes back."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from project import Project

from rekappa.archive.router import run_routers
from rekappa.config.bind import load_app
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.produce.topics import create_topics
from rekappa.recovery.choose import ToBatch
from rekappa.recovery.live_app import LiveApp
from rekappa.recovery.plan import SLACK, RewindPlan
from rekappa.recovery.rewind import plan_rewind, rewind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODE = """
from pyspark.sql import functions as F
from rekappa import App

app = App("APP")

@app.job
def out(events):
    return events.select("id", CODE, "event_ts")
"""
CONFIG = """
app: {app}
clusters:
  main: {{bootstrap: "{address}", region: local}}
sources:
  events:
    schema: id BIGINT, code INT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {{type: kafka, cluster: main, topic: {topic}, max_records_per_batch: 6}}
      backfill: {{type: iceberg, table: lake.limits.{topic}}}
sinks:
  out: {sink}
archive: {{trigger: 1s, dead_letters: lake.limits.dead_{topic}}}
profiles:
  live: {{trigger: 100 ms, spark.sql.shuffle.partitions: 1}}
"""


@dataclass
class Pair:
    """`up` reads a topic and writes another, with a mark of its code; `down` writes that one into a table."""

    spark: Any
    name: str
    up: Project
    down: Project

    @classmethod
    def make(cls, spark: SparkSession, folder: Path, home: Home, broker: str, down_at: str) -> Pair:
        name = f"limits_{uuid4().hex[:6]}"
        create_topics(broker, [f"{name}_in", f"{name}_mid"], partitions=1)

        def made(app: str, code: str, topic: str, sink: str, address: str) -> Project:
            config = CONFIG.format(app=f"{name}_{app}", topic=f"{name}_{topic}", sink=sink, address=address)
            text = CODE.replace("APP", f"{name}_{app}").replace("CODE", code)
            return Project.make(folder / f"{name}_{app}", home, broker, text, config)

        mid = f"{{type: kafka, cluster: main, topic: {name}_mid}}"
        table = f"{{type: iceberg, table: lake.limits.got_{name}}}"
        return cls(
            spark,
            name,
            made("up", 'F.lit(1).alias("code")', "in", mid, broker),
            made("down", '"code"', "mid", table, down_at),
        )

    def code(self, mark: int) -> None:
        file = self.up.folder / "app.py"
        file.write_text(file.read_text().replace("F.lit(1)", f"F.lit({mark})"))

    def run(self, ids: range) -> None:
        """These events, through both."""
        producer = Producer({"bootstrap.servers": self.up.broker})
        for number in ids:
            event = {"id": number, "code": 0, "event_ts": "2026-11-01T00:00:00Z"}
            producer.produce(f"{self.name}_in", json.dumps(event).encode(), partition=0)
        assert producer.flush(60) == 0
        self.up.live()
        self.down.live()

    def plan(self, **told: bool) -> RewindPlan:
        return plan_rewind(self._app, ToBatch(1), **told)

    def rewind(self, plan: RewindPlan) -> None:
        rewind(self._app, plan)

    @property
    def _app(self) -> LiveApp:
        loaded = self.up.loaded
        return LiveApp(self.spark, self.up.home, loaded, load_app(loaded))

    def drop_below(self, offset: int) -> None:
        """Kafka forgets the first messages of the topic between, as retention does."""
        client = AdminClient({"bootstrap.servers": self.up.broker})
        for done in client.delete_records([TopicPartition(f"{self.name}_mid", 0, offset)]).values():
            done.result(60)

    def rows(self) -> Counter[tuple[int, int]]:
        table = f"lake.limits.got_{self.name}"
        self.spark.catalog.refreshTable(table)
        return Counter((row.id, row.code) for row in self.spark.table(table).collect())


def test_a_reader_goes_back_far_enough_though_kafka_has_dropped_the_first_abandoned_messages(
    spark: SparkSession, tmp_path: Path, home: Home, broker: str
) -> None:
    pair = Pair.make(spark, tmp_path, home, broker, broker)
    pair.run(range(6))
    time.sleep(SLACK.total_seconds())  # what is this close to the point may be of after it
    pair.run(range(6, 12))
    pair.run(range(12, 18))
    clear = pair.plan(cascade=True)
    assert [(one.queries[0].batch, one.queries[0].before) for one in clear.apps] == [
        (1, ()),
        (1, (f"offset 12 of {pair.name}_mid/0",)),
    ]
    # The archive has what the reader needs once more, and of what no longer counts all.
    run_routers(spark, pair.down.loaded, home, available_now=True)
    pair.drop_below(15)
    plan = pair.plan(cascade=True)
    assert [one.queries[0].batch for one in plan.apps] == [1, 0]
    assert "as Kafka has dropped messages before offset 15" in plan.apps[1].queries[0].before[0]
    pair.code(2)
    pair.rewind(pair.plan(cascade=True))
    pair.up.live()
    pair.down.live()
    assert pair.rows() == Counter((number, 1 if number < 12 else 2) for number in range(18))


def test_a_reader_by_another_address_of_the_cluster_is_a_reader(
    spark: SparkSession, tmp_path: Path, home: Home, broker: str
) -> None:
    pair = Pair.make(spark, tmp_path, home, broker, broker.replace("127.0.0.1", "localhost"))
    pair.run(range(12))
    with pytest.raises(RunError, match=rf"Cannot rewind '{pair.name}_up' alone: {pair.name}_down reads? "):
        plan_rewind(pair._app, ToBatch(0))
    config = pair.down.folder / "rekappa.yaml"
    config.write_text(config.read_text().replace(f"topic: {pair.name}_mid,", f"topic: {pair.name}_in,"))
    with pytest.raises(RunError, match=rf"'{pair.name}_down': its run .* reads topic '{pair.name}_mid', and its conf"):
        plan_rewind(pair._app, ToBatch(0))
    config.write_text(config.read_text().replace(f"topic: {pair.name}_in,", f"topic: {pair.name}_mid,"))
    config.write_text(config.read_text().replace(broker.rpartition(":")[2], "1"))
    with pytest.raises(RunError, match=rf"Cannot tell whether app '{pair.name}_down' reads topic '{pair.name}_mid'"):
        plan_rewind(pair._app, ToBatch(0))
