"""A topic and its archive, for tests of the router and of what looks after its tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from confluent_kafka import Producer

from rekappa.archive.router import run_routers
from rekappa.archive.tables import Route, routes
from rekappa.archive.verify import verify
from rekappa.config.load import Loaded, load
from rekappa.home import Home
from rekappa.produce.topics import create_topics
from rekappa.record import INGESTION, OFFSET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
CONFIG = """
app: archive_test
clusters: {clusters}
sources:
  events:
    schema: "{schema}"
    event_time: event_ts
    candidates:
      live: {{type: kafka, cluster: {names}, topic: {topic}}}
      past: {{type: iceberg, table: lake.archive_test.{topic}}}
sinks:
  out: {{type: "null"}}
archive: {{dead_letters: lake.archive_test.dead_{topic}, max_records_per_batch: 400}}
"""
ONE = {"main": {"bootstrap": "stack"}}
TWO = {name: {"bootstrap": "stack", "region": name, "topic_prefix": f"{name}."} for name in ("us", "eu")}


class Archive:
    """One topic and its archive."""

    def __init__(self, spark: SparkSession, home: Home, broker: str, folder: Path) -> None:
        self.spark, self.home, self.broker, self.folder = spark, home, broker, folder
        self.topic = f"t{uuid4().hex[:10]}"
        self.declare("id BIGINT, event_ts TIMESTAMP")

    def declare(self, schema: str, clusters: dict[str, Any] = ONE) -> None:
        made = CONFIG.format(schema=schema, topic=self.topic, clusters=json.dumps(clusters), names=[*clusters])
        (self.folder / "rekappa.yaml").write_text(made)

    @property
    def loaded(self) -> Loaded:
        return load(self.folder)

    @property
    def route(self) -> Route:
        return routes(self.loaded)[0]

    def send(self, values: Sequence[bytes | None], first: datetime = START, prefix: str = "") -> None:
        create_topics(self.broker, [prefix + self.topic])
        producer = Producer({"bootstrap.servers": self.broker})
        for number, value in enumerate(values):
            key, millis = f"k{number}".encode(), int((first + timedelta(seconds=number)).timestamp() * 1000)
            producer.produce(prefix + self.topic, value, key, number % 2, timestamp=millis)
        assert producer.flush(30) == 0

    def route_all(self) -> None:
        run_routers(self.spark, self.loaded, self.home, available_now=True)

    def rows(self) -> list[dict[str, Any]]:
        table = self.route.table
        return [row.asDict(recursive=True) for row in self.spark.table(table).orderBy(OFFSET, INGESTION).collect()]

    def dead(self) -> list[Any]:
        table = self.route.dead_letters
        return self.spark.table(table).orderBy(INGESTION).collect()

    def assert_sound(self, messages: int) -> None:
        proofs = verify(self.spark, self.route)
        assert all(proof.sound for proof in proofs), proofs
        assert sum(proof.rows + proof.dead for proof in proofs) == messages


def event(number: int, **more: Any) -> bytes:
    return json.dumps({"id": number, "event_ts": START.isoformat(), **more}).encode()
