"""Exact replay: production's own micro-batches, from the archive, give production's output, late drops included."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from archives import START, create_archive, save_plan

from rekappa.config.model import AppConfig
from rekappa.home import Home
from rekappa.plan.offsets import Position
from rekappa.plan.plan import Mode
from rekappa.plan.recorded import RecordedBatch, exact_slices
from rekappa.replay.ordered import run_slices
from rekappa.spark.offsetlog import committed_batches, starting_offsets
from rekappa.storage.location import Location
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READS = Window(START - timedelta(days=1), START + timedelta(days=1))


def counts(inputs: Mapping[str, DataFrame]) -> DataFrame:
    from pyspark.sql import functions as F

    timed = inputs["events"].withWatermark("event_ts", "3 minutes")
    grouped = timed.groupBy(F.window("event_ts", "5 minutes"), "user").agg(F.sum("value").alias("s"))
    return grouped.select("window.start", "user", "s")


def test_reproduces_production_batch_by_batch(
    spark: SparkSession, bare_config: AppConfig, home: Home, broker: str, location: Location
) -> None:
    topic = f"exact-{uuid.uuid4().hex[:8]}"
    create_topic(broker, topic)
    live: dict[int, list[tuple[Any, ...]]] = {}
    for rate, (first, last) in zip((170, 45, 1000), ((0, 400), (400, 520), (520, 1200)), strict=True):
        produce(broker, topic, first, last)
        run_live(spark, broker, topic, location / "live", rate, live)

    archive = create_archive(spark, bare_config, home)
    kafka = spark.read.format("kafka").option("kafka.bootstrap.servers", broker).option("subscribe", topic)
    record(kafka.load()).writeTo(archive.name).append()
    records = recorded(location / "live", topic)
    ends = [entry.ends for entry in records]
    assert any(earlier == later for earlier, later in pairwise(ends)), "no batch without data"

    scan = archive.scan("events", READS, timedelta(minutes=15))
    slices = exact_slices(records, scan.splits)
    save_plan(location / "plan", {"events": archive}, READS, slices=slices, mode=Mode.EXACT)
    replayed: dict[int, list[tuple[Any, ...]]] = {}
    outcome = run_slices(
        spark, location / "plan", "job", {"events": archive.source()}, counts,
        lambda rows, number: replayed.update({number: sorted(tuple(row) for row in rows.collect())}),
        location / "checks", close=False,
    )  # fmt: skip
    assert outcome.rows == 1200
    assert outcome.late_rows > 0
    assert replayed == live


def create_topic(broker: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    client = AdminClient({"bootstrap.servers": broker})
    for made in client.create_topics([NewTopic(topic, 3, 1)]).values():
        made.result(30)


def produce(broker: str, topic: str, first: int, last: int) -> None:
    """Events ten seconds apart in three partitions; every ninth is twenty minutes late."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker})
    for number in range(first, last):
        ingested = START + timedelta(seconds=10 * number)
        happened = ingested - timedelta(minutes=20 if number % 9 == 0 else 0, seconds=number * 13 % 60)
        value = {"id": number, "user": f"u{number % 3}", "value": number, "event_ts": happened.isoformat()}
        producer.produce(topic, json.dumps(value), partition=number % 3, timestamp=int(ingested.timestamp() * 1000))
    assert producer.flush(30) == 0


def record(kafka: DataFrame) -> DataFrame:
    """Kafka's rows in the record's shape."""
    from pyspark.sql import functions as F

    payload = F.from_json(F.col("value").cast("string"), "id BIGINT, user STRING, value BIGINT, event_ts TIMESTAMP")
    metadata = F.expr(
        "named_struct('topic', topic, 'partition', partition, 'offset', offset, 'kafka_ingestion_ts', timestamp, "
        "'key', key, 'headers', CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>), 'region', 'local')"
    )
    return kafka.select(payload.alias("p"), metadata.alias("__metadata__")).select("p.*", "__metadata__")


def run_live(
    spark: SparkSession, broker: str, topic: str, checkpoint: Location, rate: int, out: dict[int, list[tuple[Any, ...]]]
) -> None:
    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker).option("subscribe", topic)
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(rate))

    def write(rows: DataFrame, number: int) -> None:
        out[number] = sorted(tuple(row) for row in rows.collect())

    query = counts({"events": record(stream.load())}).writeStream.foreachBatch(write)
    query = query.option("checkpointLocation", checkpoint.uri).trigger(availableNow=True)
    query.start().awaitTermination()


def recorded(checkpoint: Location, topic: str) -> list[RecordedBatch]:
    """What a live run keeps of its batches, with where it began as batch -1."""

    def ends(line: str | None) -> dict[Position, int]:
        parts = json.loads(line or "{}").get(topic, {})
        return {Position("events", "local", topic, int(part)): end for part, end in parts.items()}

    start = RecordedBatch(-1, ends(starting_offsets(checkpoint)[0]))
    return [start] + [
        RecordedBatch(batch.number, ends(batch.sources[0]), batch.watermark)
        for batch, _ in committed_batches(checkpoint, None)
    ]
