"""An app that is rewound in tests, and what its sinks must hold.

Every micro-batch reads six events of a topic with one partition, so what each must give is computed here, event by
event. The state is a sum that no batch forgets: a wrong restart shows in every batch after it.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer, TopicPartition
from project import Project, wait_until

from rekappa.cli.main import main
from rekappa.config.bind import load_app
from rekappa.home import Home
from rekappa.iceberg.commits import BATCH, WRITER, load_table
from rekappa.iceberg.history import ancestors
from rekappa.iceberg.past import rows_at
from rekappa.produce.topics import create_topics
from rekappa.recovery.choose import Wanted
from rekappa.recovery.plan import RewindPlan
from rekappa.recovery.rewind import LiveApp, plan_rewind, rewind
from rekappa.store.record import Run
from rekappa.store.runs import RunStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EACH = 6
NAMES = ("a", "b", "c")
HEAD = """
from pyspark.sql import functions as F
from rekappa import App

app = App("APP")
"""
JOBS = {
    "seen": """
@app.job
def seen(events):
    return events.select("id", "name", (F.col("value") * WEIGHT).alias("value"))
""",
    "totals": """
@app.job
def totals(events):
    return events.groupBy("name").agg(SUMS)
""",
    "once": """
@app.job
def once(events):
    return events.dropDuplicates(["id"])
""",
    "running": """
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

class Running(StatefulProcessor):
    def init(self, handle):
        self.so_far = handle.getValueState("so_far", "total BIGINT, ids BIGINT")

    def handleInputRows(self, key, rows, timerValues):
        total, ids = self.so_far.get() if self.so_far.exists() else (0, 0)
        for row in rows:
            total, ids = total + row.value * WEIGHT, ids + row.id
        self.so_far.update((total, ids))
        yield Row(name=key[0], total=total, ids=ids)

    def close(self):
        pass

@app.job
def running(events):
    return events.select("id", "name", "value").groupBy("name").transformWithState(
        Running(), "name STRING, total BIGINT, ids BIGINT", "Append", "None")
""",
}
SUMS = 'F.sum(F.col("value") * WEIGHT).alias("total"), F.sum("id").alias("ids")'
CONFIG = """
app: {app}
sources:
  events:
    schema: id BIGINT, name STRING, value BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates: {{live: {{type: kafka, topic: {app}, max_records_per_batch: 6}}}}
sinks:
{sinks}
profiles:
  live:
    trigger: 100 ms
    spark.sql.shuffle.partitions: 2
{spark}
"""
SINKS = {
    "seen": "{{type: iceberg, table: lake.rewound.seen_{app}}}",
    "seen_files": "{{type: parquet, job: seen, path: {folder}/files}}",
    "totals": "{{type: iceberg, table: lake.rewound.totals_{app}, mode: upsert, key: [name], output_mode: update}}",
    "once": "{{type: 'null'}}",
    "running": "{{type: iceberg, table: lake.rewound.running_{app}}}",
}
Row = tuple[Any, ...]


def totals(weights: Mapping[int, int], events: range) -> Counter[Row]:
    """The sums of these events, by name."""
    return Counter(
        (name, sum(7 * one * weights[one] for one in events if NAMES[one % 3] == name),
         sum(one for one in events if NAMES[one % 3] == name))
        for name in NAMES
    )  # fmt: skip


@dataclass(frozen=True)
class Story(Project):
    """An app, and what its sinks must hold: `weights` says by which code each event was read last."""

    spark: Any = None
    sinks: tuple[str, ...] = ()
    weights: dict[int, int] = field(default_factory=dict)
    strangers: Counter[Row] = field(default_factory=Counter)

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        folder: Path,
        home: Home,
        broker: str,
        sinks: tuple[str, ...],
        settings: Mapping[str, str] | None = None,
    ) -> Story:
        """An app with these sinks; `settings` are Spark's for its live runs."""
        name = f"rewound_{uuid4().hex[:8]}"
        place = folder / name
        told = {sink: SINKS[sink].format(app=name, folder=place) for sink in sinks}
        config = CONFIG.format(
            app=name,
            sinks="\n".join(f"  {sink}: {text}" for sink, text in told.items()),
            spark="\n".join(f"    {key}: {value}" for key, value in (settings or {}).items()),
        )
        made = replace(cls.make(place, home, broker, "", config), spark=spark, sinks=sinks)
        made.code(1)
        return made

    @property
    def store(self) -> RunStore:
        return RunStore.open(self.home)

    @property
    def tables(self) -> dict[str, str]:
        return {sink: f"lake.rewound.{sink}_{self.name}" for sink in self.sinks if "iceberg" in SINKS[sink]}

    def code(self, weight: int, sums: str = SUMS, **instead: str) -> None:
        """The app's code with this weight; `instead` are other texts of its jobs."""
        jobs = [instead.get(job, text) for job, text in JOBS.items() if job in self.sinks]
        text = HEAD.replace("APP", self.name) + "".join(jobs)
        (self.folder / "app.py").write_text(text.replace("SUMS", sums).replace("WEIGHT", str(weight)))

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
        self.read_by(weight, events)
        return made

    def read_by(self, weight: int, events: range) -> None:
        self.weights.update(dict.fromkeys(events, weight))

    @property
    def app(self) -> LiveApp:
        return LiveApp(self.spark, self.home, self.loaded, load_app(self.loaded))

    def plan(self, wanted: Wanted) -> RewindPlan:
        return plan_rewind(self.app, wanted)

    def rewind(self, wanted: Wanted) -> RewindPlan:
        plan = self.plan(wanted)
        rewind(self.app, plan)
        return plan

    def call(self, name: str, *words: str) -> Result:
        """A command as a person gives it, in this process, on the tests' own Spark."""
        runner = CliRunner(env={"REKAPPA_HOME": str(self.home.root)})
        command = [*name.split(), str(self.folder), *words]
        return runner.invoke(main, command)

    def told(self, name: str, *words: str) -> Any:
        """What a command answers as JSON."""
        ended = self.call(name, *words, "--json")
        assert ended.exit_code == 0, ended.output
        return json.loads(ended.stdout)

    def rows(self, sink: str) -> Counter[Row]:
        if sink == "seen_files":
            return Counter(tuple(row) for row in self.spark.read.parquet(f"{self.folder}/files/batch=*").collect())
        self.spark.catalog.refreshTable(self.tables[sink])
        return Counter(tuple(row) for row in self.spark.table(self.tables[sink]).collect())

    def truth(self, sink: str, events: range) -> Counter[Row]:
        """What the sink must hold of the batches of these events, and of what others wrote."""
        if sink == "totals":
            return totals(self.weights, events) + Counter({("z", 1, 1): 1} if self.strangers else {})
        if sink == "running":
            ends = range(events.start + EACH, events.stop + 1, EACH)
            return sum((totals(self.weights, range(events.start, end)) for end in ends), Counter())
        own = Counter((one, NAMES[one % 3], 7 * one * self.weights[one]) for one in events)
        return own + self.strangers if sink == "seen" else own

    def check(self, events: range) -> None:
        """All sinks hold what these events give, and what others wrote."""
        for sink in self.sinks:
            assert self.rows(sink) == self.truth(sink, events), sink

    def every_batch(self, run: str) -> dict[int, Counter[Row]]:
        """What the keyed table held after each batch of the run, but for what others wrote."""
        name = self.tables["totals"]
        own = [one for one in ancestors(load_table(self.spark, name)) if one.summary().get(WRITER) == f"{run}/totals"]
        return {
            int(one.summary().get(BATCH)): Counter(
                tuple(row) for row in rows_at(self.spark, name, int(one.snapshotId())).where("name <> 'z'").collect()
            )
            for one in own
        }

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
        """What a refusal must leave as it was: checkpoints, savepoints, runs, snapshots, files, ends of the topic."""
        asking = Consumer({"bootstrap.servers": self.broker, "group.id": "looking"})
        ends = asking.get_watermark_offsets(TopicPartition(self.name, 0), 60)
        asking.close()
        snapshots = {one: load_table(self.spark, one).currentSnapshot().snapshotId() for one in self.tables.values()}
        return {
            "files": self.checkpoints,
            "savepoints": self.home.savepoints(self.name).names(),
            "runs": [(run.id, run.state, run.progress) for run in self.store.runs(self.name)],
            "snapshots": snapshots,
            "parquet": sorted(str(path) for path in (self.folder / "files").glob("*")),
            "topic": ends,
        }

    def reached(self, events: int) -> bool:
        """Whether every query of the app's newest run has committed the batches of so many events."""
        run = self.store.runs(self.name)[0].id
        last = [self.store.last_batch(run, sink) for sink in self.sinks]
        return all(one is not None and one >= events // EACH - 1 for one in last)


@contextmanager
def stopped_when(condition: Callable[[], bool], what: str) -> Iterator[None]:
    """A live run in this thread, inside, is stopped as by a person once the condition holds."""

    assert threading.current_thread() is threading.main_thread(), "where alone Python handles signals"
    ended = threading.Event()

    def watch() -> None:
        try:
            wait_until(lambda: ended.is_set() or condition(), what)
        finally:
            if not ended.is_set():
                os.kill(os.getpid(), signal.SIGTERM)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
