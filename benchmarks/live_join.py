"""The files of a live join over a day: checkpoint, state and savepoints while events keep coming.

A real run, from Kafka, of the shape that keeps the most files: a join has four state stores in every partition. Time
is simulated: every micro-batch brings five minutes of events, so that 288 of them are a day, Spark keeps as many
batches as it would at that trigger, and savepoints are asked for by that clock, every third batch. Files are counted
in quarters of the day.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rekappa.checkpoints.savepoints import keep_points
from rekappa.config.bind import load_app
from rekappa.config.load import load
from rekappa.home import Home
from rekappa.produce.topics import create_topics
from rekappa.runs.live import kept_batches, run_live
from rekappa.runs.queries import QueryProgress
from rekappa.spark.offsetlog import last_committed
from rekappa.stack.broker import down, up
from rekappa.store.runs import RunStore

BATCHES = int(os.environ.get("REKAPPA_BENCH_BATCHES", "288"))
STEP = timedelta(minutes=5)
"""What a micro-batch brings."""
SHORT = 3
"""Micro-batches in a quarter of an hour."""
EACH = 60
"""Events of each topic in a micro-batch."""
START = datetime.now(UTC)
"""The day to come: to the run's own clock its savepoints are never old, nor is another one due."""
CONFIG = f"""
app: day
sources:
  shown:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates: {{live: {{type: kafka, topic: shown, max_records_per_batch: {EACH}}}}}
  played:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates: {{live: {{type: kafka, topic: played, max_records_per_batch: {EACH}}}}}
sinks:
  joined: {{type: iceberg, table: lake.day.joined}}
profiles:
  live:
    trigger: 100 ms
    spark.sql.shuffle.partitions: 4
    spark.sql.streaming.stateStore.maintenanceInterval: 10s
    spark.sql.streaming.minBatchesToRetain: {kept_batches(STEP)}
"""
APP = '''
from pyspark.sql import functions as F
from rekappa import App

app = App("day")


@app.job
def joined(shown, played):
    """What was shown, with the play that it led to."""
    one = shown.withWatermark("event_ts", "10 minutes").alias("s")
    other = played.withWatermark("event_ts", "10 minutes").alias("p")
    soon = "s.id = p.id AND p.event_ts BETWEEN s.event_ts AND s.event_ts + INTERVAL 10 MINUTES"
    return one.join(other, F.expr(soon), "leftOuter").select("s.id", "s.event_ts", F.col("p.event_ts").alias("played"))
'''


def main() -> dict[str, Any]:
    """Files after each quarter of the day, and how many there are at its end to those at its half: 1 has levelled off.
    Savepoints and the table's snapshots are kept for three days, and have not."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "day")
        root.mkdir()
        (root / "app.py").write_text(APP)
        (root / "rekappa.yaml").write_text(CONFIG)
        home = Home(root / ".rekappa").made()
        try:
            found = _day(root, home, up(home).bootstrap)
        finally:
            down(home)
    half, end = found["2/4"], found["4/4"]
    return {
        "micro_batches": BATCHES,
        "quarters": found,
        "end_to_half": {name: round(end[name] / max(1, half[name]), 2) for name in end},
    }


def _day(root: Path, home: Home, bootstrap: str) -> dict[str, dict[str, int]]:
    from confluent_kafka import Producer

    create_topics(bootstrap, ("shown", "played"), partitions=1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(BATCHES * EACH):
        moment = START + STEP * (number / EACH)
        event = json.dumps({"id": number, "event_ts": moment.isoformat()}).encode()
        for topic in ("shown", "played"):
            producer.produce(topic, event, partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0
    found: dict[str, dict[str, int]] = {"0/4": _files(home)}
    kept: set[int] = set()
    ended = threading.Event()

    def watch(_: list[QueryProgress]) -> None:
        run = RunStore.open(home).runs("day")[0].id
        last = last_committed(home.checkpoint("day", run) / "joined")
        if last is None:
            return
        done = last + 1
        if done // SHORT not in kept:
            kept.add(done // SHORT)
            keep_points(home, "day", run, ["joined"], START + STEP * SHORT * (done // SHORT))
        quarter = f"{4 * done // BATCHES}/4"
        if quarter not in found:
            found[quarter] = _files(home)
            print(f"   {quarter}: {found[quarter]}", flush=True)
        if done >= BATCHES and not ended.is_set():
            ended.set()
            os.kill(os.getpid(), signal.SIGTERM)

    loaded = load(root)
    run_live(loaded, load_app(loaded), home, on_progress=watch)
    return found


def _files(home: Home) -> dict[str, int]:
    """How many files there are: of the log, of state, of savepoints, and in the table's metadata."""
    below = {
        "log": [home.root / "checkpoints"],
        "state": [home.root / "checkpoints"],
        "savepoints": [home.root / "savepoints"],
        "metadata": list(home.warehouse.glob("**/joined/metadata")),
    }
    counts = dict.fromkeys(below, 0)
    for name, folders in below.items():
        for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
            in_state = "state" in path.relative_to(home.root).parts
            counts[name] += name not in ("log", "state") or in_state == (name == "state")
    return counts
