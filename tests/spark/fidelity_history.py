"""The fidelity suite's ground: hours of events through a real Kafka, live apps and the archive, once per test run.

minutes   0 .. 75    only there to be warmed up on
         75 .. 120   ON_TIME: nothing of it comes late
        150 .. 195   LATE: one event in twenty comes 25 to 80 minutes after it happened
        195 .. 285   lets the last windows and joins close
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rekappa.app import App
from rekappa.archive.router import run_routers
from rekappa.config.bind import load_app
from rekappa.config.load import Loaded, load
from rekappa.config.model import IcebergSink
from rekappa.demo.events import Event, Traffic, in_arrival_order, sessions, take_rate
from rekappa.demo.produce import produce
from rekappa.home import Home
from rekappa.plan.plan import Mode, Plan
from rekappa.planning.make import make_plan
from rekappa.planning.request import BackfillRequest
from rekappa.produce.topics import create_topics
from rekappa.runs.backfill import run_backfill
from rekappa.runs.live import run_live
from rekappa.staging.tables import staging_table
from rekappa.store.record import Batch, Run, State
from rekappa.store.runs import RunStore
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[Any, ...]
MINUTE = timedelta(minutes=1)
START = datetime(2026, 11, 1, tzinfo=UTC)
FOLDER = Path(__file__).parent
EXAMPLES = FOLDER.parents[1] / "examples"
ROUNDS: dict[int, dict[str, int]] = {
    110: {},
    200: {"impressions": 400, "playback_events": 800},
    400: {"playbacks": 40},
}
"""Where, in minutes of ingestion time, production caught up and stopped for a while, and how many records of a source
it took at once until then: all of a source that is not named, so that it runs ahead of the others. One micro-batch of
nearly two hours, then some of twenty minutes, then one source in one and the other in many: each is run by every query,
so there are as many as that takes and no more."""
SHAPES = (
    "plain", "tumbling", "sliding", "session_windows", "inner_join", "left_join", "distinct_rows", "distinct_keys",
    "distinct_within", "chained", "self_join", "windowed_join", "both_halves",
)  # fmt: skip
JOBS = {**dict.fromkeys(SHAPES, "fidelity"), "plays_per_impression": "take_rate", "take_rate": "take_rate",
        "sessions": "sessions"}  # fmt: skip
"""Each job and the app that it belongs to."""


def stretch(first: float, last: float) -> Window:
    return Window(START + first * MINUTE, START + last * MINUTE)


ON_TIME, LATE = stretch(75, 120), stretch(150, 195)


def history() -> list[Event]:
    """All events as Kafka gets them: a burst, a quiet stretch, repeated impressions, and the late ones."""
    rng = random.Random(11)
    shape = Traffic(per_minute=20, burst=range(80, 83), quiet=range(100, 110))
    made = [*take_rate(stretch(0, 285), shape), *sessions(stretch(0, 285), replace(shape, seed=8))]
    made += [
        replace(event, ingested=event.ingested + rng.uniform(1, 40) * timedelta(seconds=1))
        for event in made
        if event.topic == "impressions" and rng.random() < 0.05
    ]
    late = [
        replace(event, ingested=event.ingested + rng.uniform(25, 80) * MINUTE)
        if LATE.contains(event.event_time) and rng.random() < 0.05
        else event
        for event in made
    ]
    return in_arrival_order(iter(_in_whole_millis(event) for event in late))


def _in_whole_millis(event: Event) -> Event:
    ingested = event.ingested.replace(microsecond=event.ingested.microsecond // 1000 * 1000)
    return replace(event, topic=f"fidelity_{event.topic}", ingested=ingested)


@dataclass
class Production:
    """The apps that ran live, and what they left behind."""

    spark: SparkSession
    home: Home
    apps: dict[str, tuple[Loaded, App]]
    runs: dict[str, Run] = field(default_factory=dict)
    replays: dict[tuple[str, Mode, Window], Run] = field(default_factory=dict)
    events: dict[str, list[Any]] = field(default_factory=dict)

    def of(self, job: str) -> tuple[Loaded, App]:
        return self.apps[JOBS[job]]

    def batches(self, job: str) -> list[Batch]:
        return RunStore.open(self.home).batches(self.runs[JOBS[job]].id, job)

    def output(self, job: str, window: Window) -> Counter[Row]:
        """Production's rows of the window."""
        sink = self.of(job)[0].config.sinks[job]
        assert isinstance(sink, IcebergSink)
        return self._rows(sink.table, sink.event_time, window)

    def staged(self, job: str, run: Run, window: Window) -> Counter[Row]:
        config = self.of(job)[0].config
        return self._rows(staging_table(config, run.id, job), config.sinks[job].event_time, window)

    def _rows(self, table: str, event_time: str | None, window: Window) -> Counter[Row]:
        from pyspark.sql import functions as F

        assert event_time is not None
        moment = F.col(event_time)
        rows = self.spark.table(table).where((moment >= F.lit(window.start)) & (moment < F.lit(window.end)))
        return Counter(tuple(row) for row in rows.collect())

    def archived(self, source: str) -> list[Any]:
        """All events of a source that are in the archive."""
        if source not in self.events:
            self.events[source] = self.spark.table(f"lake.fidelity.{source}").collect()
        return self.events[source]

    def plan(self, job: str, mode: Mode, window: Window, **options: Any) -> tuple[BackfillRequest, Plan]:
        request = BackfillRequest(window, jobs=(job,), mode=mode, live_run=self.runs[JOBS[job]].id, **options)
        return request, make_plan(self.spark, *self.of(job), self.home, request)

    def run(self, job: str, request: BackfillRequest, plan: Plan) -> Run:
        run = run_backfill(self.spark, *self.of(job), self.home, request, plan=plan)
        assert run.state is State.FINISHED
        return run

    def replay(self, job: str, mode: Mode, window: Window, **options: Any) -> Run:
        """A backfill of one job; the same one is not made twice."""
        key = (job, mode, window)
        if key not in self.replays:
            self.replays[key] = self.run(job, *self.plan(job, mode, window, **options))
        return self.replays[key]


def open_production(spark: SparkSession, home: Home, most: Mapping[str, int]) -> Production:
    loaded = {
        "fidelity": load(FOLDER / "fidelity", overrides=_capped(("impressions", "playbacks"), most)),
        "take_rate": load(EXAMPLES / "take_rate", overrides=_moved(("impressions", "playbacks"), most)),
        "sessions": load(EXAMPLES / "sessions", overrides=_moved(("playback_events",), most)),
    }
    return Production(spark, home, {name: (one, load_app(one)) for name, one in loaded.items()})


def make_production(spark: SparkSession, home: Home, broker: str) -> Production:
    """Send, run live in rounds of different length, archive."""
    events = history()
    create_topics(broker, {f"{event.region}.{event.topic}" for event in events})
    runs: dict[str, Run] = {}
    for first, (last, most) in zip((0, *ROUNDS), ROUNDS.items(), strict=False):
        arrived = stretch(first, last)
        produce(broker, [event for event in events if arrived.contains(event.ingested)])
        for name, (one, app) in open_production(spark, home, most).apps.items():
            runs[name] = run_live(one, app, home, available_now=True, fresh=first == 0)
    made = open_production(spark, home, {})
    made.runs = runs
    run_routers(spark, made.apps["fidelity"][0], home, available_now=True)
    return made


def _capped(sources: Sequence[str], most: Mapping[str, int]) -> list[str]:
    return [
        f"sources.{source}.candidates.live.max_records_per_batch={most[source]}" for source in sources if source in most
    ]


def _moved(sources: Sequence[str], most: Mapping[str, int]) -> Sequence[str]:
    """The example as it is, but for its topics and tables, so that it does not meet other tests'."""
    changed = _capped(sources, most)
    for source in sources:
        changed.append(f"sources.{source}.candidates.live.topic=fidelity_{source}")
        changed.append(f"sources.{source}.candidates.backfill.table=lake.fidelity.{source}")
    changed.append("profiles.live.spark.sql.shuffle.partitions=1")
    sinks = ("sessions",) if "playback_events" in sources else ("plays_per_impression", "take_rate")
    for sink in sinks:
        changed += [f"sinks.{sink}.table=lake.fidelity.{sink}", f"sinks.{sink}.partition_by=[]"]
    return changed
