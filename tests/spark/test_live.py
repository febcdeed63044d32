"""Live runs as a user has them: started, stopped, killed and continued through the command line."""

from __future__ import annotations

import signal
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from project import Project, wait_until

from rekappa.demo.events import Event, Traffic, in_arrival_order, take_rate
from rekappa.home import Home
from rekappa.store.record import State
from rekappa.store.runs import RunStore
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 11, 1, tzinfo=UTC)
CODE = """
from pyspark.sql import functions as F
from rekappa import App

app = App("APP")

@app.job
def shown(impressions):
    return impressions.select("impression_id", "show_id", "event_ts")

@app.job
def per_show(impressions):
    counts = impressions.withWatermark("event_ts", "1 minute").groupBy(F.window("event_ts", "5 minutes"), "show_id")
    return counts.count().select("window.start", "show_id", "count")
"""
CONFIG = """
app: {app}
sources:
  impressions:
    schema: impression_id BIGINT, account_id BIGINT, show_id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates: {{live: {{type: kafka, topic: {topic}, max_records_per_batch: 700}}}}
sinks:
  shown: {{type: iceberg, table: lake.live_test.shown_{topic}, event_time: event_ts}}
  shown_files: {{type: parquet, job: shown, path: {folder}/files}}
  per_show: {{type: iceberg, table: lake.live_test.per_show_{topic}, event_time: start}}
profiles:
  live: {{trigger: 100 ms, spark.sql.shuffle.partitions: 2, spark.hadoop.fs.defaultFS: "hdfs://127.0.0.1:9"}}
"""
"""Nobody answers at that address: every path must say of itself where it is."""


@pytest.fixture
def project(tmp_path: Path, home: Home, broker: str) -> Project:
    name = f"live_{uuid4().hex[:8]}"
    folder = tmp_path / name
    config = CONFIG.format(app=name, topic=f"shown_{name}", folder=folder)
    return Project.make(folder, home, broker, CODE.replace("APP", name), config)


def impressions(project: Project, start: datetime, minutes: int, seed: int) -> list[Event]:
    topic = project.loaded.config.sources["impressions"].candidates["live"].topic  # type: ignore[union-attr]
    window = Window(start, start + timedelta(minutes=minutes))
    made = in_arrival_order(take_rate(window, Traffic(per_minute=100, seed=seed, burst=range(0), quiet=range(0))))
    return [
        Event(topic, event.region, event.key, event.event_time, event.ingested, event.payload)
        for event in made
        if event.topic == "impressions"
    ]


def rows(spark: SparkSession, project: Project, sink: str) -> list[tuple[object, ...]]:
    table = project.loaded.config.sinks[sink].table  # type: ignore[union-attr]
    spark.catalog.refreshTable(table)
    return [tuple(row) for row in spark.table(table).collect()]


def test_killed_and_continued_a_live_run_loses_and_doubles_nothing(spark: SparkSession, project: Project) -> None:
    first, second = impressions(project, START, 10, 1), impressions(project, START + timedelta(minutes=10), 20, 2)
    project.send(first + second)
    process = project.start("run", str(project.folder))
    store = RunStore.open(project.home)

    def batches() -> int:
        runs = store.runs(project.name)
        going = runs[0].id if runs and runs[0].state is State.RUNNING else ""
        return store.last_batch(going, "per_show") or 0

    wait_until(lambda: batches() >= 2, "two batches are done")
    process.kill()
    process.communicate()
    assert store.runs(project.name)[0].state is State.DIED

    ended = project.json("run", str(project.folder), "--available-now")
    assert ended["state"] == "stopped"
    assert len(store.runs(project.name)) == 1, "the same run was continued"
    sent = Counter((e.payload["impression_id"], e.payload["show_id"]) for e in first + second)
    assert Counter((row[0], row[1]) for row in rows(spark, project, "shown")) == sent
    files = spark.read.parquet(str(project.folder / "files"))
    assert Counter((row[0], row[1]) for row in files.select("impression_id", "show_id").collect()) == sent

    closed = START + timedelta(minutes=25)
    windows = Counter(
        (e.event_time - (e.event_time - START) % timedelta(minutes=5), e.payload["show_id"]) for e in first + second
    )
    expected = {(*key, count) for key, count in windows.items() if key[0] < closed}
    counted = {(row[0].replace(tzinfo=UTC), *row[1:]) for row in rows(spark, project, "per_show")}  # type: ignore[attr-defined]
    assert {row for row in counted if row[0] < closed} == expected

    recorded = store.batches(ended["id"], "per_show")
    assert [batch.number for batch in recorded] == list(range(-1, len(recorded) - 1))
    ends = [sum(batch.positions[0].ends.values()) for batch in recorded]
    assert ends[0] == 0
    assert ends[-1] == len(first + second)
    assert ends == sorted(ends)
    marks = [batch.watermark for batch in recorded if batch.watermark]
    assert marks == sorted(marks)


def test_sigterm_stops_after_the_current_batch(project: Project) -> None:
    project.send(impressions(project, START, 5, 3))
    process = project.start("run", str(project.folder), "--json")
    store = RunStore.open(project.home)
    folder = str(project.folder)

    def own() -> str:
        return next((run.id for run in store.runs(project.name)), "")

    wait_until(lambda: store.last_batch(own(), "shown") is not None, "a batch is done")
    project.rekappa("run", folder, expect=2)
    assert f"`rekappa stop {own()}` stops it" in project.errors.read_text()
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0, out
    run = store.run(own())
    assert run.state is State.STOPPED
    assert project.rekappa("stop", run.id, expect=2) == ""


def test_a_query_that_spark_refuses_is_named(project: Project) -> None:
    (project.folder / "app.py").write_text(
        (project.folder / "app.py").read_text().replace('.withWatermark("event_ts", "1 minute")', "")
    )
    project.send(impressions(project, START, 1, 4))
    project.rekappa("run", str(project.folder), "--available-now", expect=2)
    message = project.errors.read_text()
    assert "error: Cannot stream job 'per_show' into sink 'per_show'" in message
    assert "Traceback" not in message
