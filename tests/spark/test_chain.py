"""Chained jobs, a chain of three and a diamond in one: the first writes two topics, the second reads one of them and
writes a third, the last reads that one and the other.

             left ──> second ──> mid ──┐
    first ──┤          └─ totals       ├──> last ── seen
             right ────────────────────┘

What each table must hold is computed here, event by event: it is what a clean run gives.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from project import Project, wait_until

from rekappa.archive.router import run_routers
from rekappa.cli.main import main
from rekappa.config.bind import load_app
from rekappa.errors import RunError, WorkFailed
from rekappa.fence.line import BATCH, QUERY, RUN
from rekappa.fence.topic import LINEAGE, LineageTopic
from rekappa.home import Home
from rekappa.iceberg.commits import load_table
from rekappa.plan.plan import Mode
from rekappa.planning.request import BackfillRequest
from rekappa.produce.topics import create_topics
from rekappa.recovery.choose import ToBatch, Wanted
from rekappa.recovery.live_app import LiveApp
from rekappa.recovery.plan import RewindPlan
from rekappa.recovery.rewind import plan_rewind, resume, rewind, undo_rewind
from rekappa.runs.backfill import run_backfill
from rekappa.runs.live import run_live
from rekappa.sources.open import open_batch
from rekappa.staging.tables import staging_table
from rekappa.store.record import State
from rekappa.store.runs import RunStore
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EACH = 6
NAMES = ("a", "b", "c")
FIRST = """
from pyspark.sql import functions as F
from rekappa import App

app = App("APP")

@app.job
def left(events):
    return events.select("id", "name", (F.col("value") * WEIGHT).alias("value"), "event_ts")

@app.job
def right(events):
    return events.select("id", "name", (F.col("value") * WEIGHT + 1).alias("value"), "event_ts")
"""
SECOND = """
from pyspark.sql import functions as F
from rekappa import App

app = App("APP")

@app.job
def mid(events):
    return events.select("id", "name", (F.col("value") * 2).alias("value"), "event_ts")

@app.job
def totals(events):
    return events.groupBy("name").agg(F.sum("value").alias("total"))
"""
LAST = """
from pyspark.sql import functions as F
from rekappa import App

app = App("APP")

@app.job
def seen(mids, rights):
    return mids.select("id", "value").union(rights.select("id", "value"))
"""
SOURCE = """
    schema: id BIGINT, name STRING, value BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {{type: kafka, topic: {topic}, max_records_per_batch: 6}}
      backfill: {{type: iceberg, table: lake.chained.{topic}}}
"""
PROFILE = """
profiles:
  live: {trigger: 100 ms, spark.sql.shuffle.partitions: 2}
"""
Row = tuple[Any, ...]


@dataclass
class Story:
    """`weights` says by which code the first app read each event last."""

    name: str
    spark: Any
    first: Project
    second: Project
    last: Project
    weights: dict[int, int] = field(default_factory=dict)
    strangers: Counter[Row] = field(default_factory=Counter)
    start: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def projects(self) -> tuple[Project, ...]:
        return self.first, self.second, self.last

    @property
    def store(self) -> RunStore:
        return RunStore.open(self.first.home)

    def app(self, project: Project) -> LiveApp:
        loaded = project.loaded
        return LiveApp(self.spark, project.home, loaded, load_app(loaded))

    def produce(self, ids: range) -> None:
        producer = Producer({"bootstrap.servers": self.first.broker})
        for number in ids:
            event = {"id": number, "name": NAMES[number % 3], "value": 7 * number, "event_ts": "2026-11-01T00:00:00Z"}
            producer.produce(f"{self.name}_in", json.dumps(event).encode(), partition=0)
        assert producer.flush(60) == 0

    def send(self, topic: str, run: str, query: str, batch: int, event: int) -> None:
        """A message as a process of that run would send it."""
        producer = Producer({"bootstrap.servers": self.first.broker})
        value = {"id": event, "name": "a", "value": event, "event_ts": "2026-11-01T00:00:00Z"}
        headers: dict[str, str | bytes | None] = {RUN: run, QUERY: query, BATCH: str(batch)}
        producer.produce(f"{self.name}_{topic}", json.dumps(value).encode(), partition=0, headers=headers)
        assert producer.flush(60) == 0

    def code(self, weight: int) -> None:
        (self.first.folder / "app.py").write_text(FIRST.replace("APP", self.first.name).replace("WEIGHT", str(weight)))

    def run(self, weight: int, events: range) -> None:
        """All catch up; the first by the code of this weight, which reads these events."""
        self.code(weight)
        self.weights.update(dict.fromkeys(events, weight))
        for project in self.projects:
            project.live()

    def plan(self, wanted: Wanted, project: Project | None = None) -> RewindPlan:
        return plan_rewind(self.app(project or self.first), wanted, cascade=True)

    def killed(self, project: Project, when: str, number: int, plan: RewindPlan | None = None) -> None:
        """A process that carries the plan out, or resumes what is open, and is killed on its way."""
        gateway = self.spark.sparkContext._gateway.gateway_parameters
        words = [str(project.folder), when, str(number), str(gateway.port), gateway.auth_token]
        if plan is not None:
            kept = project.folder.with_name("plan.pickle")
            kept.write_bytes(pickle.dumps(plan))
            words.append(str(kept))
        process = project.start(*words, command=(str(Path(__file__).with_name("rewind_until_killed.py")),))
        process.communicate()
        assert process.returncode == -9, project.errors.read_text()[-3000:]

    def rows(self, table: str) -> Counter[Row]:
        name = f"lake.chained.{table}_{self.name}"
        self.spark.catalog.refreshTable(name)
        return Counter(tuple(row) for row in self.spark.table(name).collect())

    def check(self, events: range) -> None:
        """The tables hold what a clean run over these events gives."""
        left = {one: 7 * one * self.weights[one] for one in events}
        totals = Counter((name, sum(left[one] for one in events if NAMES[one % 3] == name)) for name in NAMES)
        assert self.rows("totals") == totals
        assert self.rows("seen") == self.strangers + Counter(
            row for one in events for row in ((one, 2 * left[one]), (one, left[one] + 1))
        )

    def sent(self, topic: str) -> int:
        """How many messages the topic holds, whether they count or not."""
        options = {"kafka.bootstrap.servers": self.first.broker, "subscribe": f"{self.name}_{topic}"}
        return int(self.spark.read.format("kafka").options(**options).load().count())

    def everything(self) -> dict[str, Any]:
        """What a refusal must leave as it was."""
        tables = [f"lake.chained.{table}_{self.name}" for table in ("seen", "totals")]
        runs = [(run.id, run.state, dict(run.progress)) for one in self.projects for run in self.store.runs(one.name)]
        folders = [self.first.home.root / "checkpoints" / one.name for one in self.projects]
        return {
            "snapshots": [load_table(self.spark, one).currentSnapshot().snapshotId() for one in tables],
            "runs": runs,
            "files": {str(file) for folder in folders for file in folder.rglob("*") if "/state/" not in str(file)},
            "topics": [self.sent(topic) for topic in ("left", "right", "mid")],
            "lines": LineageTopic({"bootstrap.servers": self.first.broker}).fence(f"{self.name}_left"),
        }

    def command(self, *words: str, expect: int = 0) -> str:
        done = CliRunner().invoke(main, list(words), env={"REKAPPA_HOME": str(self.first.home.root)})
        assert done.exit_code == expect, (done.output, done.exception)
        return done.stdout


@pytest.fixture
def story(tmp_path: Path, home: Home, broker: str, spark: SparkSession) -> Story:
    name = f"chained_{uuid4().hex[:6]}"
    topics = {one: f"{name}_{one}" for one in ("in", "left", "right", "mid")}
    create_topics(broker, topics.values(), partitions=1)

    def source(one: str) -> str:
        return SOURCE.format(topic=topics[one])

    def kafka(one: str) -> str:
        return f"{{type: kafka, topic: {topics[one]}}}"

    def made(app: str, code: str, config: str) -> Project:
        text = code.replace("APP", f"{name}_{app}").replace("WEIGHT", "1")
        return Project.make(tmp_path / f"{name}_{app}", home, broker, text, f"app: {name}_{app}\n{config}{PROFILE}")

    first = f"sources:\n  events:{source('in')}sinks:\n  left: {kafka('left')}\n  right: {kafka('right')}\n"
    totals = f"{{type: iceberg, table: lake.chained.totals_{name}, mode: upsert, key: [name], output_mode: update}}"
    second = f"sources:\n  events:{source('left')}sinks:\n  mid: {kafka('mid')}\n  totals: {totals}\n"
    last = (
        f"sources:\n  mids:{source('mid')}  rights:{source('right')}sinks:\n"
        f"  seen: {{type: iceberg, table: lake.chained.seen_{name}}}\n"
    )
    return Story(name, spark, made("first", FIRST, first), made("second", SECOND, second), made("last", LAST, last))


@contextmanager
def lineage_kept_by(policy: str, broker: str) -> Iterator[None]:
    """While the lineage topic has another policy of keeping messages."""
    admin = AdminClient({"bootstrap.servers": broker})

    def keep_by(value: str) -> None:
        change = ConfigEntry("cleanup.policy", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, LINEAGE, incremental_configs=[change])
        for asked in admin.incremental_alter_configs([resource]).values():
            asked.result(60)

    keep_by(policy)
    try:
        yield
    finally:
        keep_by("compact")


def test_chained_jobs_go_back_together_and_end_as_if_nothing_had_been_wrong(story: Story) -> None:
    story.produce(range(12))
    story.run(1, range(12))
    story.check(range(12))
    story.produce(range(12, 18))
    story.run(99, range(12, 18))
    story.check(range(18))
    old = {one.name: story.store.runs(one.name)[0].id for one in story.projects}

    # The mended code; nobody is rewound alone, and nothing is touched by what is refused or only shown.
    story.code(10)
    before = story.everything()
    with pytest.raises(RunError, match=rf"Cannot rewind '{story.name}_first' alone: .*_second"):
        plan_rewind(story.app(story.first), ToBatch(1))
    with lineage_kept_by("delete", story.first.broker), pytest.raises(RunError, match="policy is delete, not compact"):
        story.plan(ToBatch(1))
    shown = story.plan(ToBatch(1))
    points = {(app.app.rpartition("_")[2], one.query): (one.batch, one.reset.removed)
              for app in shown.apps for one in app.queries}  # fmt: skip
    assert points == {
        ("first", "left"): (1, 6), ("first", "right"): (1, 6), ("second", "mid"): (1, 6),
        ("second", "totals"): (1, 3), ("last", "seen"): (1, 12),
    }  # fmt: skip
    assert story.everything() == before

    # Killed -9 before the first step, then after each before that is noted, so that it is done twice; whoever resumes.
    story.killed(story.first, "told", 1, shown)
    opened = story.store.runs(story.first.name)[0]
    assert opened.spec["rewind"] == json.loads(json.dumps(shown.as_json())), "what was shown is what is recorded"
    for project in story.projects:
        with pytest.raises(RunError, match=rf"'{project.name}': the rewind to run .* is not completed"):
            project.live()
    story.killed(story.last, "noted", 1)
    for done, project in enumerate((story.second, story.first, story.last, story.second), start=1):
        story.killed(project, "noted", 2)
        assert len(story.store.run(opened.id).progress["done"]) == done
    story.killed(story.first, "told", 2)
    assert len(story.store.run(opened.id).progress["done"]) == 5
    story.command("rewind", "--resume", story.store.runs(story.last.name)[0].id)
    story.check(range(12))
    with pytest.raises(RunError, match="none is open"):
        resume(story.app(story.first))

    # A dead process still sends: of a batch that was abandoned, and of one that never was there.
    sent = story.sent("left")
    for batch in (2, 99):
        story.send("left", old[story.first.name], "left", batch, 7777)
        story.send("mid", old[story.second.name], "mid", batch, 7777)
    story.run(10, range(12, 18))
    story.check(range(18))
    assert story.sent("left") == sent + 2 + 6, "nothing is wiped"
    told = json.loads(story.command("lineage", f"{story.name}_left", "--json"))
    assert {one["run"]: one["until"] for one in told["senders"]} == {old[story.first.name]: 1, opened.id: None}
    assert {one["app"] for one in told["senders"]} == {story.first.name}

    # Back to before the first rewind, with messages of all earlier processes in between.
    story.send("right", opened.id, "right", 99, 7777)
    story.code(1000)
    told = json.loads(story.command("rewind", str(story.first.folder), *["--to", "0", "--cascade", "--yes", "--json"]))
    assert [one["app"] for one in told["downstream"]] == [story.second.name, story.last.name]
    story.send("right", opened.id, "right", 99, 7777)
    story.check(range(6))
    story.run(1000, range(6, 18))
    story.check(range(18))

    # Undone by way of any of them, all is as it was, and they go on.
    undo_rewind(story.app(story.last))
    story.weights.update({**dict.fromkeys(range(12), 1), **dict.fromkeys(range(12, 18), 10)})
    story.check(range(18))
    story.produce(range(18, 24))
    # What the run sent that goes on again counts with it, whenever it was sent.
    story.strangers[7777, 7777] += 2
    story.run(10, range(18, 24))
    story.check(range(24))
    assert story.store.runs(story.first.name)[0].state is State.ABANDONED

    # The archive holds all that was sent; of it counts what counts of the topic, also where Kafka has dropped it.
    run_routers(story.spark, story.second.loaded, story.second.home, available_now=True)
    story.spark.catalog.refreshTable(f"lake.chained.{story.name}_left")
    assert story.spark.table(f"lake.chained.{story.name}_left").count() == story.sent("left")
    archived = open_batch(story.spark, story.second.loaded, story.second.home, "events", None)
    assert Counter(tuple(row) for row in archived.select("id", "value").collect()) == Counter(
        (one, 7 * one * story.weights[one]) for one in range(24)
    )
    _replayed_in_every_order(story)
    end = story.sent("left")
    admin = AdminClient({"bootstrap.servers": story.first.broker})
    for deleted in admin.delete_records([TopicPartition(f"{story.name}_left", 0, end - 3)]).values():
        deleted.result(60)
    rewind(story.app(story.second), story.plan(ToBatch(0), story.second))
    for project in (story.second, story.last):
        project.live()
    story.check(range(24))

    _unknown_senders(story)


def _replayed_in_every_order(story: Story) -> None:
    """What the archive holds and does not count is in no backfill either."""
    loaded, home = story.last.loaded, story.last.home
    run_routers(story.spark, loaded, home, available_now=True)
    window = Window(story.start, datetime.now(UTC))
    for mode in (Mode.ORDERED, Mode.STRICT, Mode.EXACT):
        request = BackfillRequest(window, mode=mode, warm_up=timedelta(), drain=timedelta(), allow_incomplete=True)
        made = run_backfill(story.spark, loaded, load_app(loaded), home, request)
        staged = story.spark.table(staging_table(loaded.config, made.id, "seen")).select("id", "value").collect()
        assert Counter(tuple(row) for row in staged) == story.rows("seen"), mode


def _unknown_senders(story: Story) -> None:
    """A writer that begins while a job runs is looked up; one that nobody has announced stops it, until accepted."""
    lineage, topic = LineageTopic({"bootstrap.servers": story.first.broker}), f"{story.name}_right"
    loaded = story.last.loaded
    with ThreadPoolExecutor(1) as other:
        running = other.submit(run_live, loaded, load_app(loaded), story.last.home)
        wait_until(lambda: story.store.runs(story.last.name)[0].state is State.RUNNING, "it runs")
        wait_until(lambda: bool(story.spark.streams.active), "its query is there")
        lineage.begin(topic, ("live_new", "right"))
        story.send("right", "live_new", "right", 0, 501)
        story.strangers[501, 501] += 1
        wait_until(lambda: story.rows("seen")[501, 501] == 1 or running.done(), "the new writer's message has come")
        story.send("right", "live_nobody", "right", 0, 502)
        with pytest.raises(WorkFailed, match="by run 'live_nobody', query 'right', of which nobody knows"):
            running.result()
    story.command("lineage", topic, "--accept", "live_nobody/right")
    story.strangers[502, 502] += 1
    story.last.live()
    story.check(range(24))
