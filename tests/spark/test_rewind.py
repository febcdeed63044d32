"""A live job that goes back: forked at a point, its sinks with it, and run on with changed code.

Every micro-batch reads six events of a topic with one partition, so what each must give is computed here, event by
event. The state is a sum that no batch forgets: a wrong restart shows in every batch after it.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from project import Project

from rekappa.checkpoints.files import listed, named_in
from rekappa.checkpoints.points import restart_points
from rekappa.checkpoints.savepoints import take
from rekappa.cli.main import main
from rekappa.config.bind import load_app
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.iceberg.commits import BATCH, WRITER, load_table
from rekappa.iceberg.history import ancestors
from rekappa.iceberg.past import rows_at
from rekappa.produce.topics import create_topics
from rekappa.recovery.choose import NoState, ToBatch, ToSavepoint, Wanted
from rekappa.recovery.plan import RewindPlan
from rekappa.recovery.resets.tables import UpsertReset
from rekappa.recovery.rewind import LiveApp, plan_rewind, resume, rewind, undo_rewind
from rekappa.spark.offsetlog import last_committed
from rekappa.store.record import Run, State
from rekappa.store.runs import RunStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EACH = 6
QUERIES = ("seen", "seen_files", "totals")
NAMES = ("a", "b", "c")
CODE = """
from pyspark.sql import functions as F
from rekappa import App

app = App("APP")

@app.job
def seen(events):
    return events.select("id", "name", (F.col("value") * WEIGHT).alias("value"))

@app.job
def totals(events):
    return events.groupBy("name").agg(SUMS)
"""
SUMS = 'F.sum(F.col("value") * WEIGHT).alias("total"), F.sum("id").alias("ids")'
SWAPPED = 'F.sum("id").alias("ids"), F.sum(F.col("value") * WEIGHT).alias("total")'
OTHER_TYPE = 'F.sum(F.col("value") * WEIGHT).cast("bigint").alias("total"), F.max(F.col("name")).alias("ids")'
CONFIG = """
app: {app}
sources:
  events:
    schema: id BIGINT, name STRING, value BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates: {{live: {{type: kafka, topic: {app}, max_records_per_batch: 6}}}}
sinks:
  seen: {{type: iceberg, table: lake.rewound.seen_{app}}}
  seen_files: {{type: parquet, job: seen, path: {folder}/files}}
  totals: {{type: iceberg, table: lake.rewound.totals_{app}, mode: upsert, key: [name], output_mode: update}}
profiles:
  live:
    trigger: 100 ms
    spark.sql.shuffle.partitions: 2
    spark.sql.streaming.stateStore.minDeltasForSnapshot: 3
{state}
"""
STATE = "org.apache.spark.sql.execution.streaming.state"
STORES = {
    "in memory": {"spark.sql.streaming.stateStore.providerClass": f"{STATE}.HDFSBackedStateStoreProvider"},
    "RocksDB with changelog": {
        "spark.sql.streaming.stateStore.providerClass": f"{STATE}.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    },
}
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Story(Project):
    """An app, and what its sinks must hold: `weights` says by which code each event was read last."""

    spark: Any = None
    weights: dict[int, int] = field(default_factory=dict)
    strangers: Counter[Row] = field(default_factory=Counter)

    @property
    def store(self) -> RunStore:
        return RunStore.open(self.home)

    @property
    def tables(self) -> dict[str, str]:
        return {sink: f"lake.rewound.{sink}_{self.name}" for sink in ("seen", "totals")}

    def code(self, weight: int, sums: str = SUMS) -> None:
        text = CODE.replace("APP", self.name).replace("SUMS", sums).replace("WEIGHT", str(weight))
        (self.folder / "app.py").write_text(text)

    def produce(self, ids: range) -> None:
        create_topics(self.broker, [self.name], partitions=1)
        producer = Producer({"bootstrap.servers": self.broker})
        for number in ids:
            event = {"id": number, "name": NAMES[number % 3], "value": 7 * number, "event_ts": "2026-11-01T00:00:00Z"}
            producer.produce(self.name, json.dumps(event).encode(), partition=0)
        assert producer.flush(60) == 0

    def run(self, weight: int, events: range) -> Run:
        """Catch up with the topic by the code of this weight, and say that it has read these events."""
        self.code(weight)
        made = self.live()
        self.weights.update(dict.fromkeys(events, weight))
        return made

    @property
    def app(self) -> LiveApp:
        return LiveApp(self.spark, self.home, self.loaded, load_app(self.loaded))

    def plan(self, wanted: Wanted) -> RewindPlan:
        return plan_rewind(self.app, wanted)

    def rewind(self, wanted: Wanted) -> RewindPlan:
        plan = self.plan(wanted)
        rewind(self.app, plan)
        return plan

    def rows(self, sink: str) -> Counter[Row]:
        if sink == "seen_files":
            return Counter(tuple(row) for row in self.spark.read.parquet(f"{self.folder}/files/batch=*").collect())
        self.spark.catalog.refreshTable(self.tables[sink])
        return Counter(tuple(row) for row in self.spark.table(self.tables[sink]).collect())

    def seen(self, events: range) -> Counter[Row]:
        return Counter((one, NAMES[one % 3], 7 * one * self.weights[one]) for one in events)

    def totals(self, events: range) -> Counter[Row]:
        return totals(self.weights, events)

    def check(self, events: range) -> None:
        """All sinks hold what these events give, and what others wrote."""
        assert self.rows("seen") == self.seen(events) + self.strangers
        assert self.rows("seen_files") == self.seen(events)
        assert self.rows("totals") == self.totals(events) + Counter({("z", 1, 1): 1} if self.strangers else {})

    @property
    def checkpoints(self) -> dict[str, bytes]:
        """Every file of the app's checkpoints, but for those of state: these Spark still merges in the background."""
        folder = self.home.root / "checkpoints" / self.name
        return {str(one): one.read_bytes() for one in folder.rglob("*") if one.is_file() and "/state/" not in str(one)}

    @property
    def state(self) -> dict[Path, bytes]:
        folder = self.home.root / "checkpoints" / self.name
        found = {}
        for one in folder.glob("*/*/state/**/*"):
            with suppress(FileNotFoundError, IsADirectoryError):
                found[one] = one.read_bytes()
        return found

    def everything(self) -> dict[str, Any]:
        """What a refusal must leave as it was: files of checkpoints, runs and snapshots."""
        snapshots = {one: load_table(self.spark, one).currentSnapshot().snapshotId() for one in self.tables.values()}
        return {
            "files": self.checkpoints,
            "runs": [(run.id, run.state, run.progress) for run in self.store.runs(self.name)],
            "snapshots": snapshots,
            "parquet": sorted(str(path) for path in (self.folder / "files").iterdir()),
        }


def totals(weights: dict[int, int], events: range) -> Counter[Row]:
    return Counter(
        (name, sum(7 * one * weights[one] for one in events if NAMES[one % 3] == name),
         sum(one for one in events if NAMES[one % 3] == name))
        for name in NAMES
    )  # fmt: skip


@pytest.fixture(params=list(STORES))
def story(
    request: pytest.FixtureRequest, tmp_path: Path, home: Home, broker: str, spark: SparkSession
) -> Iterator[Story]:
    name = f"rewound_{uuid4().hex[:8]}"
    folder = tmp_path / name
    state = "\n".join(f"    {key}: {value}" for key, value in STORES[request.param].items())
    config = CONFIG.format(app=name, folder=folder, state=state)
    yield replace(Story.make(folder, home, broker, CODE, config), spark=spark)
    for key in (*STORES[request.param], "spark.sql.streaming.stateStore.minDeltasForSnapshot"):
        spark.conf.unset(key)


def test_a_job_goes_back_with_its_sinks_and_on_with_other_code(story: Story) -> None:
    spark = story.spark
    story.produce(range(48))
    first = story.run(1, range(48))
    story.check(range(48))
    for sink, row in (("seen", "(-1, 'z', -1)"), ("totals", "('z', 1, 1)")):
        spark.sql(f"INSERT INTO {story.tables[sink]} VALUES {row}")
    story.strangers.update([(-1, "z", -1)])
    take(story.home, story.name, first.id, QUERIES, "all-read")

    # Refusals leave everything as it was.
    before, state = story.everything(), story.state
    for sums, words in ((SWAPPED, "was sum.*, now it is sum"), (OTHER_TYPE, "Cannot go on with")):
        story.code(10, sums)
        with pytest.raises(RunError, match=words):
            story.rewind(ToBatch(3))
    story.code(10)
    with pytest.raises(RunError, match=r"Cannot rewind query '.*' to batch 99: there is no such batch"):
        story.plan(ToBatch(99))
    assert story.everything() == before

    # What is shown is what happens.
    shown = story.plan(ToBatch(3))
    assert {one.reset.sink: (one.reset.removed, one.reset.restored) for one in shown.queries} == {
        "seen": (24, 0), "seen_files": (24, 0), "totals": (3, 3),
    }  # fmt: skip
    assert story.everything() == before
    done = story.rewind(ToBatch(3))
    assert [one.reset for one in done.queries] == [one.reset for one in shown.queries]
    story.check(range(24))
    assert story.checkpoints.items() >= before["files"].items()
    assert all(not file.exists() or file.read_bytes() == content for file, content in state.items())
    assert story.store.run(first.id).state is State.ABANDONED

    second = story.run(10, range(24, 48))
    assert second.id == done.operation
    story.check(range(48))
    assert every_batch(story, second.id) == {
        4 + at: totals(story.weights, range(24 + EACH * (at + 1))) for at in range(4)
    }
    assert [batch.number for batch in story.store.batches(second.id, "totals")] == list(range(-1, 8))

    # Undone, everything is as it was, and the first run goes on.
    undo_rewind(story.app)
    story.weights.update(dict.fromkeys(range(48), 1))
    story.check(range(48))
    story.produce(range(48, 54))
    assert story.run(1, range(48, 54)).id == first.id
    story.check(range(54))


def every_batch(story: Story, run: str) -> dict[int, Counter[Row]]:
    """What the keyed table held after each batch of the run, but for what others wrote."""
    name = story.tables["totals"]
    own = [one for one in ancestors(load_table(story.spark, name)) if one.summary().get(WRITER) == f"{run}/totals"]
    return {
        int(one.summary().get(BATCH)): Counter(
            tuple(row) for row in rows_at(story.spark, name, int(one.snapshotId())).where("name <> 'z'").collect()
        )
        for one in own
    }


@pytest.mark.parametrize("story", ["in memory"], indirect=True)
def test_back_and_back_again_after_a_compaction_and_a_crash(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    spark = story.spark
    story.produce(range(36))
    first = story.run(1, range(36))
    spark.sql(f"INSERT INTO {story.tables['seen']} VALUES (7, 'b', 49), (-1, 'z', -1)")
    spark.sql(f"INSERT INTO {story.tables['totals']} VALUES ('z', 1, 1)")
    story.strangers.update([(7, "b", 49), (-1, "z", -1)])
    take(story.home, story.name, first.id, QUERIES, "all-read")
    # The rows of all batches, and those of another writer, are in one file now; one of those equals one of ours.
    merging = "options => map('min-input-files', '2')"
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{story.tables['seen']}', {merging})")

    # A crash while sinks are reset: nothing else goes on until it is completed.
    story.code(2)
    plan = story.plan(ToBatch(0))
    with monkeypatch.context() as broken:
        broken.setattr(UpsertReset, "carry_out", _fails)
        with pytest.raises(ZeroDivisionError):
            rewind(story.app, plan)
    for other in (lambda: story.plan(ToBatch(0)), story.live):
        with pytest.raises(RunError, match="is not completed"):
            other()
    resume(story.app)
    story.check(range(6))
    second = story.run(2, range(6, 36))
    assert second.id == plan.operation
    story.check(range(36))

    # Through the command line, from a point of the second run, then to one before the first rewind.
    points = command(story, "checkpoints", "--verify", "--json")
    assert {one["batch"] for one in points if one["run"] == second.id and one["restorable"]} == set(range(1, 6))
    assert {one["batch"] for one in points if one["run"] == first.id} == {0}
    story.code(3)
    told = command(story, "rewind", "--to", "2", "--yes", "--json")
    assert [one["reset"]["removed"] for one in told["queries"]] == [18, 18, 3]
    story.check(range(18))


@pytest.mark.parametrize("story", ["in memory"], indirect=True)
def test_back_to_before_a_rewind_and_to_no_state(story: Story) -> None:
    story.produce(range(18))
    first = story.run(1, range(18))
    take(story.home, story.name, first.id, QUERIES, "all-read")
    story.code(2)
    story.rewind(ToBatch(1))
    story.run(2, range(12, 18))
    story.check(range(18))
    with pytest.raises(RunError, match="savepoint 'all-read' holds no batch of it that counts"):
        story.plan(ToSavepoint("all-read"))
    story.code(3)
    story.rewind(ToBatch(0))
    story.check(range(6))
    story.run(3, range(6, 18))
    story.check(range(18))

    # Nothing of ours is left, and all is made anew.
    story.code(4)
    story.rewind(NoState())
    assert story.rows("seen") == story.rows("totals") == Counter()
    story.run(4, range(18))
    story.check(range(18))
    assert Counter(run.state for run in story.store.runs(story.name)) == {State.ABANDONED: 3, State.STOPPED: 1}


@pytest.mark.parametrize("story", ["RocksDB with changelog"], indirect=True)
def test_savepoints_of_a_running_job_outlive_what_it_purges(story: Story) -> None:
    config = story.folder / "rekappa.yaml"
    config.write_text(config.read_text() + "    spark.sql.streaming.minBatchesToRetain: 2\n")
    story.produce(range(60))
    story.code(1)
    taken: dict[str, int] = {}
    with ThreadPoolExecutor(1) as other:
        running = other.submit(story.live)
        while not running.done():
            run = next((one.id for one in story.store.runs(story.name)), "")
            folder = story.home.checkpoint(story.name, run)
            committed = {query: last_committed(folder / query) for query in QUERIES}
            if None in committed.values() or committed["totals"] in taken.values():
                time.sleep(0.01)
                continue
            made = take(story.home, story.name, run, QUERIES, f"at-{len(taken)}")
            taken[made.name] = made.batches["totals"]
        first = running.result()
    story.weights.update(dict.fromkeys(range(60), 1))
    story.check(range(60))
    own = restart_points(listed(story.home.checkpoint(story.name, first.id) / "totals"))
    assert 0 not in {point.batch for point in own}, "it has purged what it had first"
    assert len(set(taken.values())) > 2
    for name, batch in taken.items():
        here = story.home.savepoints(story.name) / name / "totals"
        assert [point.batch for point in restart_points(listed(here), named_in(here)) if point.restorable] == [batch]

    # Each holds the state of its batch, as Spark reads it.
    spark = story.spark
    for name, batch in taken.items():
        at = story.home.savepoints(story.name) / name / "totals"
        held = spark.read.format("statestore").load(at.uri).select("key.name", "value").collect()
        assert Counter((row[0], *row[1]) for row in held) == totals(story.weights, range(EACH * (batch + 1)))

    # What others did to the same rows, and history that is gone, is refused before anything is touched.
    seen, keyed = story.tables["seen"], story.tables["totals"]
    for statement, words in (
        (f"UPDATE {keyed} SET total = 0 WHERE name = 'a'", "others changed some of them meanwhile: name=a"),
        (f"DELETE FROM {seen} WHERE id = 59", "1 of them were changed or deleted since"),
        (f"CALL lake.system.expire_snapshots('{seen}', TIMESTAMP '2099-01-01', 1)", "of that time have expired"),
    ):
        spark.sql(statement)
        before = story.everything()
        with pytest.raises(RunError, match=words):
            story.plan(ToSavepoint("at-0"))
        assert story.everything() == before


def _fails(reset: UpsertReset) -> None:
    raise ZeroDivisionError


def command(story: Story, name: str, *words: str) -> Any:
    told = CliRunner(env={"REKAPPA_HOME": str(story.home.root)}).invoke(main, [name, str(story.folder), *words])
    assert told.exit_code == 0, told.output
    return json.loads(told.stdout)
