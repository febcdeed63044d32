"""The router against the plainest Spark job that writes the same topic to Parquet; bytes in Kafka and in the archive.

Both read the whole topic in one micro-batch, in turns in one session; a first round is not counted. The plain job
decodes the payload and writes it beside Kafka's own columns, as the archive does; `payload_only` leaves those out.
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import tempfile
import time
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

MESSAGES = 2_000_000
PARTITIONS = 4
ROUNDS = 3
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
            _produce(bootstrap)
            return _measured(loaded, home, bootstrap, root)
        finally:
            down(home)


def _measured(loaded: Loaded, home: Home, bootstrap: str, root: Path) -> dict[str, Any]:
    spark = open_session(loaded.config, "archive", home)
    times: dict[str, list[float]] = {"plain": [], "payload_only": [], "router": []}
    for _ in range(ROUNDS):
        times["plain"].append(_plain(spark, bootstrap, root / "plain", "key", "headers", *_POSITION))
        times["payload_only"].append(_plain(spark, bootstrap, root / "payload"))
        spark.sql("DROP TABLE IF EXISTS lake.bench.impressions PURGE")
        shutil.rmtree(home.root / "checkpoints", ignore_errors=True)
        began = time.monotonic()
        done = run_routers(spark, loaded, home, available_now=True)
        times["router"].append(time.monotonic() - began)
        assert [one.rows for one in done] == [MESSAGES]
    spark.stop()
    found = cost(loaded, home, routes(loaded)[0], 30)
    median = {name: statistics.median(seconds[1:]) for name, seconds in times.items()}
    return {
        "messages": MESSAGES,
        "seconds": {name: round(value, 2) for name, value in median.items()},
        "messages_per_second": round(MESSAGES / median["router"]),
        "throughput_to_plain": round(median["plain"] / median["router"], 2),
        "throughput_to_payload_only": round(median["payload_only"] / median["router"], 2),
        "target": 0.8,
        "kafka_bytes_per_message_lz4": round(found.kafka_bytes_per_message, 1),
        "archive_bytes_per_message": round(found.archive_bytes_per_message, 1),
        "times_smaller": round(found.times_smaller, 2),
        "cheaper": round(found.saved, 3),
    }


_POSITION = ("topic", "partition", "offset", "timestamp")


def _plain(spark: SparkSession, bootstrap: str, out: Path, *columns: str) -> float:
    from pyspark.sql import functions as F

    shutil.rmtree(out, ignore_errors=True)
    began = time.monotonic()
    raw = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    raw = raw.option("subscribe", "impressions").option("startingOffsets", "earliest").option("includeHeaders", "true")
    rows = raw.load().select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("v"), *columns)
    stream = rows.select("v.*", *columns).writeStream.format("parquet").option("path", str(out / "data"))
    stream.option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    return time.monotonic() - began


def _produce(bootstrap: str) -> None:
    from confluent_kafka import Producer

    from rekappa.demo.produce import create_topics

    create_topics(bootstrap, ["impressions"], PARTITIONS)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": "lz4", "linger.ms": 50,
         "queue.buffering.max.messages": 1_000_000}
    )  # fmt: skip
    dice, start = random.Random(1), datetime.now(UTC) - timedelta(hours=3)
    for number in range(MESSAGES):
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
        producer.produce("impressions", value, key, number % PARTITIONS, timestamp=int(moment.timestamp() * 1000))
        if number % 20_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


if __name__ == "__main__":
    print(main())
