"""One writer: live runs and routers that start at once, one that is suspended and replaced, one that begins afresh."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from project import COMMAND, Project, wait_until

from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.produce.topics import create_topics
from rekappa.store.record import Kind, Run, State
from rekappa.store.runs import RunStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Several processes with a Spark each: on a busy machine their start alone takes minutes.
pytestmark = pytest.mark.timeout(1500)
START = datetime(2026, 11, 1, tzinfo=UTC)
SHORT = (str(Path(__file__).with_name("short_lease.py")),)
CODE = """
from rekappa import App

app = App("APP")

@app.job
def seen(events):
    return events.select("id", "event_ts")
"""
CONFIG = """
app: {app}
sources:
  events:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {{type: kafka, topic: {app}, max_records_per_batch: 100}}
      past: {{type: iceberg, table: lake.one_writer.events_{app}}}
sinks:
  seen: {{type: iceberg, table: lake.one_writer.seen_{app}, event_time: event_ts}}
archive: {{trigger: 1s, max_records_per_batch: 100}}
profiles:
  live: {{master: "local[2]", trigger: 100 ms, spark.sql.shuffle.partitions: 1, spark.driver.memory: 700m}}
  archive: {{master: "local[2]", spark.sql.shuffle.partitions: 1, spark.driver.memory: 700m}}
"""


KEPT = """
  kept: {{type: iceberg, job: seen, table: lake.one_writer.kept_{app}, mode: upsert, key: [id]}}
archive:"""


class Writers(Project):
    """An app with a live job and an archive of the same topic."""

    def send_ids(self, ids: range) -> None:
        create_topics(self.broker, [self.name])
        producer = Producer({"bootstrap.servers": self.broker})
        for number in ids:
            value = json.dumps({"id": number, "event_ts": START.isoformat()})
            producer.produce(self.name, value.encode(), partition=number % 2)
        assert producer.flush(60) == 0

    def ids(self, spark: SparkSession, table: str) -> Counter[int]:
        name = f"lake.one_writer.{table}_{self.name}"
        spark.catalog.refreshTable(name)
        return Counter(row.id for row in spark.table(name).select("id").collect())

    def newest(self, kind: Kind) -> Run | None:
        return next(iter(RunStore.open(self.home).runs(self.name, kind)), None)

    def done(self, kind: Kind) -> int:
        """How many micro-batches the newest run of the kind says it has done."""
        run = self.newest(kind)
        entries = run.progress.get("queries", run.progress.get("routes", ())) if run else ()
        return min((entry["batch"] + 1 for entry in entries), default=0)


def suspend(writers: Writers, processes: list[subprocess.Popen[str]]) -> None:
    """Stop them between two changes of the store: in the midst of one they would hold its file against everybody."""

    def stopped_outside_a_change() -> bool:
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        with closing(sqlite3.connect(writers.home.root / "runs.db", timeout=1)) as store:
            try:
                store.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                for process in processes:
                    process.send_signal(signal.SIGCONT)
                return False
        return True

    wait_until(stopped_outside_a_change, "both are suspended and hold no lock")


KINDS = {Kind.LIVE: ("run",), Kind.ARCHIVE: ("archive", "run")}


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(writers: Writers) -> Iterator[Start]:
    """Starts a command of the app; none outlives the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str, command: Sequence[str] = COMMAND) -> subprocess.Popen[str]:
        started.append(writers.start(*words, command=command))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def writers(tmp_path: Path, home: Home, broker: str) -> Writers:
    name = f"w{uuid4().hex[:8]}"
    return Writers.make(tmp_path / name, home, broker, CODE.replace("APP", name), CONFIG.format(app=name))


def test_of_two_that_start_at_once_one_is_refused(spark: SparkSession, writers: Writers, start: Start) -> None:
    writers.send_ids(range(300))
    pairs = {kind: [start(*words, str(writers.folder)) for _ in range(2)] for kind, words in KINDS.items()}

    def refused(pair: list[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
        return [process for process in pair if process.poll() is not None]

    for kind, pair in pairs.items():
        wait_until(lambda pair=pair: len(refused(pair)) > 0, "one of two is refused")  # type: ignore[misc]
        wait_until(lambda kind=kind: writers.done(kind) > 0, "the other is at work")  # type: ignore[misc]
    said = writers.errors.read_text()
    # Who was first is named by its run or, in the moment before that is written, by its process.
    for doing, first in (("run", "live"), ("archive", "archive")):
        assert re.search(
            rf"Cannot {doing} '{writers.name}': (run {first}_\w+|somebody) is at work in process \d+", said
        )
    listed = {run["kind"]: run for run in writers.json("runs", "--app", writers.name)}
    assert {kind: run["state"] for kind, run in listed.items()} == {"live": "running", "archive": "running"}
    writers.send_ids(range(300, 500))
    wait_until(lambda: writers.ids(spark, "seen").total() >= 500, "the live run has caught up")
    wait_until(lambda: writers.ids(spark, "events").total() >= 500, "the router has caught up")
    for kind, pair in pairs.items():
        run = writers.newest(kind)
        assert run is not None
        assert writers.json("stop", run.id)["state"] == "stopped"
        assert sorted(process.wait() for process in pair) == [0, 2]
        assert len(RunStore.open(writers.home).runs(writers.name, kind)) == 1, "the refused one left no run behind"
    for table in ("seen", "events"):
        assert writers.ids(spark, table) == Counter(range(500)), table


def test_one_that_was_suspended_and_replaced_writes_nothing_more(
    spark: SparkSession, writers: Writers, start: Start
) -> None:
    """Suspended longer than its lease lasts, another goes on in its place; woken up, it ends with an error."""
    writers.send_ids(range(300))
    first = {kind: start(*words, str(writers.folder), command=SHORT) for kind, words in KINDS.items()}
    for kind in KINDS:
        wait_until(lambda kind=kind: writers.done(kind) > 0, f"the {kind} run is at work")  # type: ignore[misc]
    suspend(writers, list(first.values()))
    writers.send_ids(range(300, 500))
    for kind in KINDS:
        expired = lambda kind=kind: (run := writers.newest(kind)) is not None and run.state is State.DIED  # noqa: E731
        wait_until(expired, "the lease has expired")
    second = [start(*words, str(writers.folder), "--available-now") for words in KINDS.values()]
    assert [process.wait() for process in second] == [0, 0], writers.errors.read_text()[-4000:]
    replaced = {kind: writers.newest(kind) for kind in KINDS}
    writers.send_ids(range(500, 600))
    for process in first.values():
        process.send_signal(signal.SIGCONT)
    assert [process.wait() for process in first.values()] == [1, 1], writers.errors.read_text()[-4000:]
    assert writers.errors.read_text().count("this process lost its lease on") == 2
    assert {kind: writers.newest(kind) for kind in KINDS} == replaced, "it left the record alone"
    for table in ("seen", "events"):
        assert writers.ids(spark, table) == Counter(range(500)), table


def test_two_apps_do_not_archive_into_one_table(spark: SparkSession, writers: Writers, tmp_path: Path) -> None:
    from rekappa.archive.router import run_routers

    with RunStore.open(writers.home).claim([f"archive table lake.one_writer.events_{writers.name}"], "be first"):
        other = CONFIG.format(app=writers.name).replace(f"app: {writers.name}", "app: another")
        second = Project.make(tmp_path / "another", writers.home, writers.broker, "", other)
        with pytest.raises(RunError, match="Cannot archive 'another': somebody is at work in process"):
            run_routers(spark, second.loaded, writers.home, available_now=True)


def test_apps_that_take_turns_archive_every_event_once(spark: SparkSession, writers: Writers, tmp_path: Path) -> None:
    """Each has a checkpoint of its own, which knows nothing of what the other has archived since."""
    from rekappa.archive.router import run_routers

    text = CONFIG.format(app=writers.name).replace("id BIGINT,", "id BIGINT, small TINYINT,")
    (writers.folder / "rekappa.yaml").write_text(text)
    second = Project.make(
        tmp_path / "second", writers.home, writers.broker, "", text.replace(f"app: {writers.name}", "app: second")
    )
    for number, project in enumerate((writers, second, writers, writers, second)):
        writers.send_ids(range(100 * number, 100 * (number + 1)))
        run_routers(spark, project.loaded, writers.home, available_now=True)
        assert writers.ids(spark, "events") == Counter(range(100 * (number + 1)))


def test_a_run_afresh_doubles_nothing_unless_told_to(spark: SparkSession, writers: Writers) -> None:
    config = writers.folder / "rekappa.yaml"
    config.write_text(config.read_text().replace("\narchive:", KEPT.format(app=writers.name)))
    writers.send_ids(range(60))
    first, app = writers.live(), str(writers.folder)
    begun = writers.json("run", app, "--fresh", "--available-now")
    assert begun["id"] != first.id
    assert RunStore.open(writers.home).run(first.id).state is State.ABANDONED
    assert writers.ids(spark, "seen") == writers.ids(spark, "kept") == Counter(range(60))
    with pytest.raises(RunError, match=f"sink 'seen': live run {begun['id']} appended what 60 events gave"):
        writers.live(fresh=True)

    writers.live(fresh=True, append_again=True)
    assert writers.ids(spark, "seen") == Counter([*range(60), *range(60)])
    assert writers.ids(spark, "kept") == Counter(range(60))
    elsewhere = f"sinks.seen.table=lake.one_writer.copy_{writers.name}"
    shown = writers.json("run", app, "--fresh", "--available-now", "--set", elsewhere)
    assert shown["state"] == "stopped"
    assert writers.ids(spark, "copy") == Counter(range(60))
