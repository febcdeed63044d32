"""The router killed at several points while events keep coming: every offset is archived once."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from confluent_kafka import Producer
from project import Project, wait_until

from rekappa.archive.tables import routes
from rekappa.demo.produce import create_topics
from rekappa.home import Home

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
archive: {{trigger: 1s, max_records_per_batch: 200, dead_letters: lake.killed.dead_{topic}}}
profiles:
  archive: {{master: "local[2]", spark.sql.shuffle.partitions: 2}}
"""


def send(broker: str, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker})
    for number in range(first, first + count):
        moment = START + timedelta(seconds=number)
        value = b"odd" if number % 97 == 0 else json.dumps({"id": number, "event_ts": moment.isoformat()}).encode()
        producer.produce(topic, value, partition=number % 2, timestamp=int(moment.timestamp() * 1000))
    assert producer.flush(30) == 0


def test_killed_and_restarted(tmp_path: Path, home: Home, broker: str) -> None:
    topic = f"k{uuid4().hex[:10]}"
    project = Project.make(tmp_path / "killed", home, broker, "", CONFIG.format(topic=topic))
    checkpoint = routes(project.loaded)[0].checkpoint(home)
    create_topics(broker, [topic])
    send(broker, topic, 0, 1000)
    # A batch is logged before it runs and again when it is done: each kill falls into another part of one.
    for at in ("offsets/1", "commits/3"):
        process = project.start("archive", "run", str(project.folder), "--json")
        wait_until(lambda at=at: (checkpoint / at).exists(), f"{at} is written")  # type: ignore[misc]
        process.kill()
        process.communicate()
        send(broker, topic, 1000 if at == "offsets/1" else 1500, 500)
    process = project.start("archive", "run", str(project.folder), "--json")
    wait_until(lambda: (checkpoint / "commits/6").exists(), "it goes on")
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 0
    project.rekappa("archive", "run", str(project.folder), "--available-now")
    proof = project.json("archive", "verify", str(project.folder))
    assert proof["sound"]
    assert sum(one["rows"] + one["dead"] for one in proof["partitions"]) == 2000
    assert sum(one["dead"] for one in proof["partitions"]) == len(range(0, 2000, 97))
    shown = project.json("archive", "status", str(project.folder))
    assert (shown[0]["lag"], shown[0]["dead_letters"]) == (0, len(range(0, 2000, 97)))
    cost = project.json("cost", str(project.folder), "--days", "30")
    assert cost[0]["measured"] == "log files"
    assert cost[0]["kafka_price"] > cost[0]["archive_price"] >= 0
