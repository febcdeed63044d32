"""Clocks that disagree, from Kafka to staging: events before their own time, scheduled times, days, a session that runs
on, in a time zone far from UTC. What must come out is worked out in plain Python from the events that were sent."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from project import Project

from rekappa.archive.router import run_routers
from rekappa.config.bind import load_app
from rekappa.demo.events import Event, in_arrival_order
from rekappa.home import Home
from rekappa.plan.plan import Mode, Plan
from rekappa.planning.make import make_plan
from rekappa.planning.request import BackfillRequest
from rekappa.runs.backfill import run_backfill
from rekappa.staging.tables import staging_table
from rekappa.store.record import Run, State
from rekappa.timeline import Window, parse_instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

ZONE = "America/New_York"
T0 = datetime(2026, 11, 2, tzinfo=UTC)
M, H = timedelta(minutes=1), timedelta(hours=1)
ON_THE_HOUR, OFF_THE_HOUR = Window(T0 + 3 * H, T0 + 4 * H), Window(T0 + 3 * H + 20 * M, T0 + 4 * H + 10 * M)
SESSIONS = Window(T0 + 2 * H, T0 + 4 * H)

CODE = """
from pyspark.sql import DataFrame, functions as F
from rekappa import App

app = App("clocks")


@app.job
def plain(events: DataFrame) -> DataFrame:
    return events.select("id", "event_ts")


@app.job
def due(events: DataFrame) -> DataFrame:
    windows = events.withWatermark("due_ts", "4 hours").groupBy(F.window("due_ts", "10 minutes"))
    counted = windows.agg(F.count("*").alias("n"), F.sum("id").alias("ids"))
    return counted.select(F.col("window.start").alias("at"), "n", "ids")


@app.job
def daily(events: DataFrame) -> DataFrame:
    return events.select("id", "day")


@app.job
def sessions(events: DataFrame) -> DataFrame:
    marked = events.withWatermark("event_ts", "10 minutes")
    made = marked.groupBy(F.session_window("event_ts", "5 minutes"), "user").agg(F.count("*").alias("n"))
    return made.select(F.col("session_window.start").alias("at"), "user", "n")


@app.job
def ended(events: DataFrame) -> DataFrame:
    marked = events.withWatermark("event_ts", "10 minutes")
    made = marked.groupBy(F.session_window("event_ts", "5 minutes"), "user").agg(F.count("*").alias("n"))
    return made.select(F.col("session_window.end").alias("at"), "user", "n")
"""
CONFIG = f"""
app: clocks
sources:
  events:
    schema: id BIGINT, user BIGINT, event_ts TIMESTAMP, due_ts TIMESTAMP, day DATE
    event_time: event_ts
    candidates:
      live: {{type: kafka, topic: clocks}}
      backfill: {{type: iceberg, table: lake.clocks.events}}
sinks:
  plain: {{type: iceberg, table: lake.clocks.plain, event_time: event_ts}}
  due: {{type: iceberg, table: lake.clocks.due, event_time: at}}
  daily: {{type: iceberg, table: lake.clocks.daily, event_time: day}}
  sessions: {{type: iceberg, table: lake.clocks.sessions, event_time: at}}
  ended: {{type: iceberg, table: lake.clocks.ended, event_time: at}}
profiles:
  live: {{spark.sql.session.timeZone: {ZONE}, spark.sql.shuffle.partitions: 1}}
  archive: {{spark.sql.session.timeZone: {ZONE}}}
  backfill: {{spark.sql.session.timeZone: {ZONE}, spark.sql.shuffle.partitions: 1, master: "local[2]"}}
"""


def sent() -> list[Event]:
    """Nine hours, an event every twenty seconds; clocks up to forty seconds ahead, some events four minutes late."""
    rng = random.Random(5)
    made = []
    for number in range(9 * 180):
        at = T0 + number * timedelta(seconds=20) + timedelta(milliseconds=rng.randrange(20_000))
        made.append(_event(rng, number, rng.randrange(50), at))
    # The one of the issue: stamped 13:00:00.2, ingested at 12:59:59.9.
    edge = _event(rng, 10_000, 60, ON_THE_HOUR.start + timedelta(milliseconds=200))
    made.append(_at(edge, ON_THE_HOUR.start - timedelta(milliseconds=100)))
    # A user who is never away for five minutes, from half past three until after any drain.
    made += [_event(rng, 20_000 + n, 99, T0 + 3.5 * H + n * 3 * M) for n in range(100)]
    return in_arrival_order(iter(made))


def _event(rng: random.Random, number: int, user: int, at: datetime) -> Event:
    late = timedelta(milliseconds=rng.choice([rng.randrange(-40_000, 0), rng.randrange(240_000)]))
    due = at + rng.uniform(20, 200) * M
    payload = {
        "id": number,
        "user": user,
        "due_ts": due.replace(microsecond=0).isoformat(),
        "day": (at.astimezone(ZoneInfo(ZONE)).date() + timedelta(days=1)).isoformat(),
    }
    return _at(Event("clocks", "local", number, at, at, payload), at + late)


def _at(event: Event, ingested: datetime) -> Event:
    whole = ingested.replace(microsecond=ingested.microsecond // 1000 * 1000)
    return Event(event.topic, event.region, event.key, event.event_time, whole, event.payload)


def micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def expected(job: str, events: list[Event], window: Window) -> Counter[tuple[Any, ...]]:
    if job == "plain":
        return Counter((e.payload["id"], micros(e.event_time)) for e in events if window.contains(e.event_time))
    if job == "daily":
        days = [(e.payload["id"], date.fromisoformat(e.payload["day"])) for e in events]
        midnight = {day: datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(ZONE)) for _, day in days}
        return Counter((one, day) for one, day in days if window.contains(midnight[day]))
    if job == "due":
        found: dict[int, list[int]] = {}
        for event in events:
            due = micros(datetime.fromisoformat(event.payload["due_ts"]))
            found.setdefault(due // 600_000_000 * 600_000_000, []).append(event.payload["id"])
        inside = range(micros(window.start), micros(window.end))
        return Counter((at, len(ids), sum(ids)) for at, ids in found.items() if at in inside)
    return Counter((micros(at), user, n) for at, user, n in _sessions(events) if window.contains(at))


def _sessions(events: list[Event]) -> Iterator[tuple[datetime, int, int]]:
    times: dict[int, list[datetime]] = {}
    for event in events:
        times.setdefault(event.payload["user"], []).append(event.event_time)
    for user, moments in times.items():
        moments.sort()
        first, n = moments[0], 0
        for at, moment in enumerate(moments):
            if at and moment - moments[at - 1] >= 5 * M:
                yield first, user, n
                first, n = moment, 0
            n += 1
        yield first, user, n


@dataclass
class Ground:
    spark: SparkSession
    project: Project
    events: list[Event]

    def plan(self, job: str, window: Window, mode: Mode | None, **options: Any) -> tuple[BackfillRequest, Plan]:
        loaded = self.project.loaded
        self.spark.conf.set("spark.sql.session.timeZone", ZONE)
        request = BackfillRequest(window, jobs=(job,), mode=mode, **options)
        return request, make_plan(self.spark, loaded, load_app(loaded), self.project.home, request)

    def replay(self, job: str, window: Window, mode: Mode | None = None, **options: Any) -> Run:
        request, plan = self.plan(job, window, mode, **options)
        loaded = self.project.loaded
        run = run_backfill(self.spark, loaded, load_app(loaded), self.project.home, request, plan=plan)
        assert run.state is State.FINISHED
        return run

    def staged(self, job: str, run: str) -> Counter[tuple[Any, ...]]:
        return self.rows(staging_table(self.project.loaded.config, run, job))

    def rows(self, table: str) -> Counter[tuple[Any, ...]]:
        """Times as numbers: Python's own would be in the zone of this machine."""
        from pyspark.sql import functions as F

        self.spark.catalog.refreshTable(table)
        rows = self.spark.table(table)
        columns = [
            F.unix_micros(one.name) if one.dataType.typeName() == "timestamp" else one.name for one in rows.schema
        ]
        return Counter(tuple(row) for row in rows.select(*columns).collect())


@pytest.fixture(scope="module")
def ground(spark: SparkSession, home: Home, broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    before = spark.conf.get("spark.sql.session.timeZone")
    project = Project.make(tmp_path_factory.mktemp("apps") / "clocks", home, broker, CODE, CONFIG)
    events = sent()
    project.send(events)
    run_routers(spark, project.loaded, home, available_now=True)
    project.live()
    yield Ground(spark, project, events)
    spark.conf.set("spark.sql.session.timeZone", str(before))


@pytest.mark.parametrize("window", [ON_THE_HOUR, OFF_THE_HOUR], ids=["on the hour", "off the hour"])
@pytest.mark.parametrize(
    ("job", "mode"),
    [("plain", Mode.BULK), ("plain", Mode.ORDERED), ("due", Mode.BULK), ("due", Mode.ORDERED), ("due", Mode.STRICT)],
)
def test_every_event_that_belongs_to_the_window_is_there(ground: Ground, job: str, mode: Mode, window: Window) -> None:
    right = expected(job, ground.events, window)
    assert sum(right.values()) > 4
    assert ground.staged(job, ground.replay(job, window, mode).id) == right


def test_production_had_them_too(ground: Ground) -> None:
    live = ground.rows("lake.clocks.plain")
    assert live == expected("plain", ground.events, Window(T0 - 24 * H, T0 + 24 * H))


def test_the_plan_says_how_far_ahead_times_are_and_how_much_a_limit_leaves_out(ground: Ground) -> None:
    needed = [
        event
        for event in ground.events
        if ON_THE_HOUR.start <= datetime.fromisoformat(event.payload["due_ts"]) < ON_THE_HOUR.end + 10 * M
    ]
    first = min(event.ingested for event in needed)
    _, plan = ground.plan("due", ON_THE_HOUR, None)
    (job,) = plan.jobs
    assert timedelta() <= (ON_THE_HOUR.start - job.warm_up) - first + M <= M
    assert "ahead of ingestion" in job.warm_up_reason
    assert not any("late events" in one for one in job.warnings)
    _, limited = ground.plan("due", ON_THE_HOUR, None, clock_skew=M)
    assert limited.jobs[0].warm_up == M
    # Bulk reads whole hours, and so all of the one before.
    early = [event for event in needed if event.ingested < ON_THE_HOUR.start - H]
    (said,) = [one for one in limited.jobs[0].warnings if "--clock-skew" in one]
    assert said.startswith(f"{len(early)} events of source 'events' have 'due_ts' ahead of their ingestion")


def test_late_events_are_named_only_when_they_are_there(ground: Ground) -> None:
    _, plan = ground.plan("plain", OFF_THE_HOUR, None)
    assert not any("late events" in one for one in plan.jobs[0].warnings)
    _, short = ground.plan("plain", OFF_THE_HOUR, Mode.ORDERED, drain=M)
    missed = [e for e in ground.events if OFF_THE_HOUR.contains(e.event_time) and e.ingested >= OFF_THE_HOUR.end + M]
    assert any(one.startswith(f"{len(missed)} late events of source 'events'") for one in short.jobs[0].warnings)


def test_days_begin_at_midnight_of_the_sessions_zone_through_the_command_line(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window around New York's midnight, in a process whose machine stands elsewhere again."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    midnight = datetime(2026, 11, 3, tzinfo=ZoneInfo(ZONE)).astimezone(UTC)
    window = Window(midnight - 30 * M, midnight + 30 * M)
    right = expected("daily", ground.events, window)
    assert sum(right.values()) > 100
    told = ["--start", window.start.isoformat(), "--end", window.end.isoformat(), "--job", "daily"]
    run = ground.project.json("backfill", str(ground.project.folder), *told, "--warm-up", "0")
    assert ground.staged("daily", run["id"]) == right


@pytest.mark.parametrize("mode", [Mode.BULK, Mode.ORDERED])
def test_a_session_that_runs_on_past_the_drain_is_never_taken_for_final(ground: Ground, mode: Mode) -> None:
    right = expected("sessions", ground.events, SESSIONS)
    (long,) = [row for row in right if row[1] == 99]
    run = ground.replay("sessions", SESSIONS, mode)
    made = ground.staged("sessions", run.id)
    assert {row[:2] for row in right} == {row[:2] for row in made}
    assert [row[1] for row in (right - made)] == [99], "the session was to be cut by the drain"
    assert micros(parse_instant(_not_final(run, "sessions"))) == long[0]
    whole = ground.replay("sessions", SESSIONS, mode, drain=5 * H)
    assert ground.staged("sessions", whole.id) == right
    assert _not_final(whole, "sessions") is None


END_OF_LONG = T0 + 3.5 * H + 99 * 3 * M + 5 * M
AT_ITS_END = Window(END_OF_LONG - 10 * M, END_OF_LONG + 10 * M)
"""By its end, half past eight, the long session belongs to the window; it began five hours before."""


@pytest.mark.parametrize("mode", [Mode.BULK, Mode.ORDERED])
def test_a_session_that_began_before_the_warm_up_is_never_taken_for_final(ground: Ground, mode: Mode) -> None:
    window = AT_ITS_END
    run = ground.replay("ended", window, mode)
    assert [row[2] < 100 for row in ground.staged("ended", run.id) if row[1] == 99] == [True]
    assert parse_instant(_not_final(run, "ended")) == window.start
    whole = ground.replay("ended", window, mode, warm_up=6 * H)
    assert [row[2] for row in ground.staged("ended", whole.id) if row[1] == 99] == [100]
    assert _not_final(whole, "ended") is None


def test_exact_mode_begins_where_the_longest_session_of_the_window_did(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, plan = ground.plan("ended", AT_ITS_END, Mode.EXACT)
    (job,) = plan.jobs
    began = AT_ITS_END.start - (T0 + 3.5 * H)
    assert began <= job.warm_up <= 2 * began + M
    assert "before which no session of the window began" in job.warm_up_reason
    assert not any("cut off" in one for one in job.warnings)
    run = ground.replay("ended", AT_ITS_END, Mode.EXACT)
    assert [row[2] for row in ground.staged("ended", run.id) if row[1] == 99] == [100]
    assert _not_final(run, "ended") is None
    # Beyond what is looked at it can't know, and says so before and after.
    monkeypatch.setattr("rekappa.planning.sessions.LONGEST", H)
    _, plan = ground.plan("ended", AT_ITS_END, Mode.EXACT)
    assert any("cut off" in one for one in plan.jobs[0].warnings)
    assert parse_instant(_not_final(ground.replay("ended", AT_ITS_END, Mode.EXACT), "ended")) == AT_ITS_END.start


def _not_final(run: Run, query: str) -> Any:
    return run.progress["jobs"][0].get("queries", {}).get(query, {}).get("not_final_from")
