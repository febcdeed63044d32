"""The router killed between the commits of a batch while events keep coming: every offset is archived once."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from confluent_kafka import Producer
from project import Project, wait_until

from rekappa.archive.router import run_routers
from rekappa.archive.status import status
from rekappa.archive.tables import routes
from rekappa.archive.verify import verify
from rekappa.config.model import AppConfig
from rekappa.errors import SourceError
from rekappa.home import Home
from rekappa.iceberg.catalog import load_table
from rekappa.produce.topics import create_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime.now(UTC) - timedelta(hours=2)
CONFIG = """
app: killed
sources:
  events:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {{type: kafka, topic: {topic}}}
      past: {{type: iceberg, table: lake.killed.{topic}}}
sinks:
  out: {{type: "null"}}
archive: {{trigger: 1s, max_records_per_batch: 300, dead_letters: lake.killed.dead_{topic}}}
profiles:
  archive: {{master: "local[2]", spark.sql.shuffle.partitions: 2}}
"""
ODD, NEW = range(7, 900, 97), range(11, 900, 89)


def send(broker: str, topic: str, numbers: range) -> None:
    """Each message odd, with a field that nobody declared, or plain."""
    producer = Producer({"bootstrap.servers": broker})
    for number in numbers:
        moment = START + timedelta(seconds=number)
        event = {"id": number, "event_ts": moment.isoformat()} | ({"extra": "x"} if number in NEW else {})
        value = b"odd" if number in ODD else json.dumps(event).encode()
        producer.produce(topic, value, partition=number % 2, timestamp=int(moment.timestamp() * 1000))
    assert producer.flush(30) == 0


def committed(config: AppConfig, home: Home, table: str) -> bool:
    try:
        return load_table(config, table, home).current_snapshot() is not None
    except SourceError:
        return False


def test_killed_and_restarted(tmp_path: Path, home: Home, broker: str, spark: SparkSession) -> None:
    topic = f"k{uuid4().hex[:10]}"
    project = Project.make(tmp_path / "killed", home, broker, "", CONFIG.format(topic=topic))
    config, route = project.loaded.config, routes(project.loaded)[0]
    create_topics(broker, [topic])
    send(broker, topic, range(300))
    # Batch 0 appends the plain events, then the dead letters, then the events with new fields. Killed after the
    # first of these commits, and when it runs again, after the second.
    for number, table in enumerate((route.table, route.dead_letters), 1):
        process = project.start("archive", "run", str(project.folder), "--json")
        wait_until(lambda table=table: committed(config, home, table), f"{table} has a commit")  # type: ignore[misc]
        process.kill()
        process.communicate()
        send(broker, topic, range(number * 300, number * 300 + 300))
    process = project.start("archive", "run", str(project.folder), "--json")
    wait_until(lambda: (route.checkpoint(home) / "commits" / "0").exists(), "it goes on")
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 0
    run_routers(spark, project.loaded, home, available_now=True)
    proofs = verify(spark, route)
    assert all(proof.sound for proof in proofs), proofs
    assert sum(proof.rows for proof in proofs) == 900 - len(ODD)
    shown = status(project.loaded, home, route)
    assert (shown.lag, shown.dead_letters) == (0, len(ODD))
    extra = spark.table(route.table).where("extra = 'x'").select("id").collect()
    assert sorted(row.id for row in extra) == [number for number in NEW if number not in ODD]
