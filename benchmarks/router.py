"""The router against the plainest Spark job that writes the same topic to Parquet; bytes in Kafka and in the archive.

Both read the whole topic in one micro-batch, in turns in one session; a first round is not counted. The plain job
decodes the payload and writes it beside Kafka's own columns, as the archive does; `payload_only` leaves those out.
Seconds of the processor are reported beside those of the clock: other work on the machine disturbs them less.
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rekappa.archive.cost import cost
from rekappa.archive.router import run_routers
from rekappa.archive.tables import routes
from rekappa.config.load import Loaded, load
from rekappa.home import Home
from rekappa.spark.session import open_session
from rekappa.stack.broker import down, up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = 1_000_000
OTHER_CODEC_MESSAGES = 100_000
PARTITIONS = 4
ROUNDS = 4
SCHEMA = """impression_id BIGINT, account_id BIGINT, show_id BIGINT, row INT, device STRING, country STRING,
      event_ts TIMESTAMP"""
CONFIG = f"""
app: router_bench
sources:
  impressions:
    schema: {SCHEMA}
    event_time: event_ts
    candidates:
      live: {{type: kafka, topic: impressions}}
      past: {{type: iceberg, table: lake.bench.impressions}}
sinks:
  out: {{type: "null"}}
"""


def main() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "rekappa.yaml").write_text(CONFIG)
        home, loaded = Home(root / ".rekappa"), load(root)
        try:
            bootstrap = up(home).bootstrap
            _produce(bootstrap, "impressions", "lz4", MESSAGES)
            _produce(bootstrap, "zstd", "zstd", OTHER_CODEC_MESSAGES)
            return _measured(loaded, home, bootstrap, root)
        finally:
            down(home)


def _measured(loaded: Loaded, home: Home, bootstrap: str, root: Path) -> dict[str, Any]:
    spark = open_session(loaded.config, "archive", home)

    def router() -> None:
        done = run_routers(spark, loaded, home, available_now=True)
        assert [one.rows for one in done] == [MESSAGES]

    ways: dict[str, Callable[[], None]] = {
        "plain": lambda: _plain(spark, bootstrap, root / "plain", "key", "headers", *_POSITION),
        "payload_only": lambda: _plain(spark, bootstrap, root / "payload"),
        "router": router,
    }
    clock: dict[str, list[float]] = {name: [] for name in ways}
    processor: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for out in ("plain", "payload", ".rekappa/checkpoints"):
            shutil.rmtree(root / out, ignore_errors=True)
        spark.sql("DROP TABLE IF EXISTS lake.bench.impressions PURGE")
        for name, way in ways.items():
            began, used = time.monotonic(), _processor_seconds(spark)
            way()
            clock[name].append(time.monotonic() - began)
            processor[name].append(_processor_seconds(spark) - used)
    spark.stop()
    found = cost(loaded, home, routes(loaded)[0], 30)
    median = {name: statistics.median(seconds[1:]) for name, seconds in clock.items()}
    work = {name: statistics.median(seconds[1:]) for name, seconds in processor.items()}
    logs = sum(file.stat().st_size for file in home.stack.rglob("zstd-*/*.log"))
    return {
        "messages": MESSAGES,
        "seconds": {name: round(value, 2) for name, value in median.items()},
        "processor_seconds": {name: round(value, 2) for name, value in work.items()},
        "messages_per_second": round(MESSAGES / median["router"]),
        "throughput_to_plain": round(median["plain"] / median["router"], 2),
        "throughput_to_payload_only": round(median["payload_only"] / median["router"], 2),
        "target": 0.8,
        "throughput_to_plain_by_processor": round(work["plain"] / work["router"], 2),
        "throughput_to_payload_only_by_processor": round(work["payload_only"] / work["router"], 2),
        "kafka_bytes_per_message_lz4": round(found.kafka_bytes_per_message, 1),
        "kafka_bytes_per_message_zstd": round(logs / OTHER_CODEC_MESSAGES, 1),
        "archive_bytes_per_message": round(found.archive_bytes_per_message, 1),
        "times_smaller": round(found.times_smaller, 2),
        "cheaper": round(found.saved, 3),
    }


_POSITION = ("topic", "partition", "offset", "timestamp")


def _processor_seconds(spark: SparkSession) -> float:
    jvm: Any = spark._jvm
    return float(jvm.java.lang.ProcessHandle.current().info().totalCpuDuration().get().toMillis()) / 1000


def _plain(spark: SparkSession, bootstrap: str, out: Path, *columns: str) -> None:
    from pyspark.sql import functions as F

    raw = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    raw = raw.option("subscribe", "impressions").option("startingOffsets", "earliest").option("includeHeaders", "true")
    rows = raw.load().select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("v"), *columns)
    stream = rows.select("v.*", *columns).writeStream.format("parquet").option("path", str(out / "data"))
    stream.option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True).start().awaitTermination()


def _produce(bootstrap: str, topic: str, codec: str, count: int) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    made = NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1, config={"compression.type": codec})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([made])[topic].result()
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50,
         "queue.buffering.max.messages": 1_000_000}
    )  # fmt: skip
    dice, start = random.Random(1), datetime.now(UTC) - timedelta(hours=3)
    for number in range(count):
        moment = start + timedelta(milliseconds=4 * number)
        event = {
            "impression_id": number,
            "account_id": dice.randrange(1_000_000),
            "show_id": dice.randrange(5000),
            "row": dice.randrange(40),
            "device": dice.choice(("tv", "phone", "web", "tablet")),
            "country": dice.choice(("US", "DE", "BR", "IN", "JP")),
            "event_ts": moment.isoformat(timespec="milliseconds"),
        }
        value = json.dumps(event, separators=(",", ":"))
        key = str(event["account_id"])
        producer.produce(topic, value, key, number % PARTITIONS, timestamp=int(moment.timestamp() * 1000))
        if number % 20_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


if __name__ == "__main__":
    print(main())
