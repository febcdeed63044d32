"""History from the archive, then Kafka, on one checkpoint: records really deleted, every offset once."""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from project import Project, wait_until
from topic import Topic, hours_ago

from rekappa.archive.router import run_routers
from rekappa.config.bind import load_app
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.recovery.bootstrap import BootstrapRequest, bootstrap
from rekappa.spark.offsetlog import committed_batches
from rekappa.store.record import Kind, Run
from rekappa.store.runs import RunStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = int(os.environ.get("REKAPPA_TEST_KILLS", "2"))
"""How often a run is killed. Each time costs a start of Spark; tried with 20."""
CODE = """
from pyspark.sql import functions as F
from rekappa import App

app = App("APP")

@app.job
def seen(events):
    return events.select("id", "event_ts", "__metadata__.region", "__metadata__.topic", "__metadata__.partition",
                         "__metadata__.offset")

@app.job
def counts(events):
    timed = events.withWatermark("event_ts", "10 seconds")
    return timed.groupBy(F.window("event_ts", "1 minute"), "user").count().select("window.start", "user", "count")
"""
CONFIG = """
app: {app}
clusters:
  eu: {{bootstrap: stack, region: eu}}
  us: {{bootstrap: stack, region: us, topic_prefix: us.}}
sources:
  events:
    schema: id BIGINT, user STRING, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {{type: kafka, topic: {topic}, cluster: [eu, us], max_records_per_batch: 400}}
      past: {{type: iceberg, table: lake.boot.{topic}, max_misalignment: {bound}}}
sinks:
  seen: {{type: iceberg, table: lake.boot.seen_{topic}}}
  counts: {{type: iceberg, table: lake.boot.counts_{topic}, event_time: start}}
archive: {{trigger: 1s, dead_letters: lake.boot.dead_{topic}}}
profiles:
  live: {{trigger: 100 ms, spark.sql.shuffle.partitions: 2}}
"""


class Booted:
    """An app that reads one topic of two regions, and what it has written."""

    def __init__(
        self, spark: SparkSession, folder: Path, home: Home, broker: str, hours: float, bound: str = "4m"
    ) -> None:
        name = f"b{uuid4().hex[:8]}"
        self.spark, self.start = spark, hours_ago(hours)
        self.topics = [Topic(broker, topic, self.start).create() for topic in (name, f"us.{name}")]
        self.project = Project.make(
            folder / name, home, broker, CODE.replace("APP", name), CONFIG.format(app=name, topic=name, bound=bound)
        )
        self.name, self.store = name, RunStore.open(home)

    def send(self, numbers: range) -> None:
        for topic in self.topics:
            topic.send(numbers)

    def archive(self) -> None:
        run_routers(self.spark, self.project.loaded, self.project.home, available_now=True)

    def delete_below(self, number: int) -> None:
        """Kafka forgets all events below this one, but for some in one partition."""
        for topic in self.topics:
            edges = {part: -(-(number - part) // topic.partitions) for part in range(topic.partitions)}
            topic.delete({**edges, 1: max(0, edges[1] - 20)})

    def bootstrap(self, since: datetime, **told: Any) -> Run:
        loaded = self.project.loaded
        request = BootstrapRequest(since, **told)
        return bootstrap(loaded, load_app(loaded), self.project.home, request, available_now=True)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        full = f"lake.boot.{table}_{self.name}"
        if not self.spark.catalog.tableExists(full):
            return []
        self.spark.catalog.refreshTable(full)
        return [tuple(row) for row in self.spark.table(full).collect()]

    def seen(self) -> Counter[tuple[str, int]]:
        """How often each event of each region was written; its place in Kafka is that of its number."""
        found: Counter[tuple[str, int]] = Counter()
        for number, _, region, topic, partition, offset in self.rows("seen"):
            assert (partition, offset) == self.topics[0].offset(number)
            assert topic == (f"us.{self.name}" if region == "us" else self.name)
            found[region, number] += 1
        return found

    def once(self, numbers: range) -> Counter[tuple[str, int]]:
        return Counter((region, number) for region in ("eu", "us") for number in numbers)

    def counted(self, until: int) -> dict[tuple[datetime, str], int]:
        """The truth of `counts`, of the windows that end before event `until`."""
        found: Counter[tuple[datetime, str]] = Counter()
        for number in range(until):
            moment = self.start + timedelta(seconds=number)
            found[moment.replace(second=0), f"u{number % 5}"] += 2
        last = self.start + timedelta(seconds=until)
        return {key: count for key, count in found.items() if key[0] + timedelta(minutes=1) <= last}

    def logged(self, run: str, query: str) -> list[tuple[str | None, ...]]:
        checkpoint = self.project.home.checkpoint(self.name, run) / query
        return [batch.sources for batch, _ in committed_batches(checkpoint, None)]


def test_history_then_live_then_past_retention(spark: SparkSession, tmp_path: Path, home: Home, broker: str) -> None:
    app = Booted(spark, tmp_path, home, broker, hours=2)
    app.send(range(1200))
    app.archive()
    app.delete_below(900)
    with pytest.raises(RunError, match="future"):
        app.bootstrap(app.start + timedelta(days=1))
    assert app.store.runs(app.name, Kind.LIVE) == [], "refused before anything was touched"

    run = app.bootstrap(app.start)
    assert app.seen() == Counter(), "what history gives is held back"
    lines = app.logged(run.id, "seen")
    assert len(lines) > 3, "several slices"
    assert json.loads(lines[-1][1] or "") == {f"us.{app.name}": {"0": 400, "1": 400, "2": 400}}

    app.send(range(1200, 1500))
    assert app.project.live().id == run.id
    assert app.seen() == app.once(range(1200, 1500))
    truth = app.counted(1490)
    counted = {(row[0], row[1]): row[2] for row in app.rows("counts")}
    assert counted, "windows that history began are closed by live events"
    assert {key: truth[key] for key in counted} == counted
    assert max(key[0] for key in counted) == max(key[0] for key in truth)

    # Stopped for longer than Kafka keeps: it goes on from the archive, then from Kafka, by itself.
    app.send(range(1500, 2400))
    app.archive()
    app.send(range(2400, 2500))
    app.delete_below(2000)
    assert app.project.live().id == run.id
    assert app.seen() == app.once(range(1200, 2500))
    counted = {(row[0], row[1]): row[2] for row in app.rows("counts")}
    assert len(counted) == len(app.rows("counts"))
    truth = app.counted(2490)
    assert {key: truth[key] for key in counted} == counted

    # A hole: the router was behind when Kafka forgot.
    app.send(range(2500, 3000))
    app.delete_below(2800)
    before = _told(app, run.id)
    with pytest.raises(RunError, match="neither Kafka nor the archive has all"):
        app.project.live()
    assert _told(app, run.id) == before, "refused before anything was touched"


def _told(app: Booted, run: str) -> Any:
    folder = app.project.home.checkpoint(app.name, run)
    return app.store.run(run), sorted((file.name, file.size, file.modified) for file in folder.files())


class Traffic:
    """Events that keep coming: a few more every moment, until told to stop."""

    def __init__(self, app: Booted, first: int) -> None:
        self._app, self.sent, self._stop = app, first, threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _send(self) -> None:
        while not self._stop.wait(0.2):
            self._app.send(range(self.sent, self.sent + 6))
            self.sent += 6


def test_killed_anywhere_every_offset_reaches_the_job_once(
    spark: SparkSession, tmp_path: Path, home: Home, broker: str
) -> None:
    app = Booted(spark, tmp_path, home, broker, hours=3, bound="1m")
    app.send(range(1800))
    app.archive()
    app.delete_below(1200)
    dice = random.Random(KILLS)
    since = (app.start - timedelta(minutes=1)).isoformat()
    words = ["bootstrap", str(app.project.folder), "--from", since, "--write-history"]

    def progress() -> int:
        """Files of the checkpoints: more with every step of a batch."""
        runs = app.store.runs(app.name, Kind.LIVE)
        folder = app.project.home.checkpoint(app.name, runs[0].id) if runs else None
        return sum(1 for file in folder.files() if not file.name.endswith(".crc")) if folder else 0

    with Traffic(app, 1800) as traffic:
        for _ in range(KILLS):
            process = app.project.start(*words)
            wanted = progress() + dice.randint(3, 40)
            wait_until(lambda wanted=wanted: progress() >= wanted, "it is somewhere else")  # type: ignore[misc]
            assert process.poll() is None, app.project.errors.read_text()[-3000:]
            process.kill()
            process.communicate()
            words = ["run", str(app.project.folder)]
    ended = app.project.json("run", str(app.project.folder), "--available-now")
    assert [run.id for run in app.store.runs(app.name, Kind.LIVE)] == [ended["id"]], "one run, however often killed"
    assert app.seen() == app.once(range(traffic.sent))
    counted = {(row[0], row[1]): row[2] for row in app.rows("counts")}
    assert len(counted) == len(app.rows("counts")), "no window is written twice"
    assert counted == {key: count for key, count in app.counted(traffic.sent).items() if key in counted}
    assert set(app.counted(1790)) <= set(counted)
    recorded = app.store.batches(ended["id"], "seen")
    assert [batch.number for batch in recorded] == list(range(-1, len(recorded) - 1))
    assert all(set(one.ends.values()) == {0} for one in recorded[0].positions), "where it began is known"
