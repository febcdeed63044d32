"""Sinks that hold the last version of a key: what ran live, in huge, tiny and uneven micro-batches, comes out again.

minutes   0 .. 50    one huge micro-batch
         50 .. 60    tiny ones
         60 .. 120   two uneven ones
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from servers.postgres import postgres
from shapes import record_ddl

from rekappa.app import App
from rekappa.archive.router import run_routers
from rekappa.cli.main import main
from rekappa.config.bind import load_app
from rekappa.config.load import Loaded, load
from rekappa.config.model import AppConfig
from rekappa.demo.events import Event
from rekappa.demo.produce import produce
from rekappa.errors import PlanError, RunError
from rekappa.home import Home
from rekappa.plan.plan import Mode
from rekappa.plan.shape import Revised
from rekappa.planning.make import make_plan
from rekappa.planning.request import BackfillRequest
from rekappa.produce.topics import create_topics
from rekappa.runs.backfill import run_backfill
from rekappa.runs.live import run_live
from rekappa.sinks.contract import BatchId, Sink
from rekappa.sinks.registry import open_sink
from rekappa.spark.analysis import analyse
from rekappa.staging.staged import StagedSink, open_staged
from rekappa.staging.tables import staging_sink
from rekappa.staging.versions import BATCH
from rekappa.store.record import Run, State
from rekappa.store.runs import RunStore
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The first test waits for production.
pytestmark = pytest.mark.timeout(900)

Row = tuple[Any, ...]
MINUTE = timedelta(minutes=1)
START = datetime(2026, 11, 1, 6, tzinfo=UTC)
FOLDER = Path(__file__).parent / "updating"
ROUNDS = ((0, 50, 5000), (50, 60, 15), (60, 120, 150))
"""First and last minute of what production read before it stopped for a while, and the most events of a batch."""
RETIRED = 9
"""A team that nobody has been in since the first half hour."""


def stretch(first: float, last: float) -> Window:
    return Window(START + first * MINUTE, START + last * MINUTE)


MIDDLE, UNTIL_NOW = stretch(30, 80), stretch(60, 120)
PUBLISHED = stretch(90, 120)


def history() -> list[Event]:
    """Changes of thirty accounts, 16 seconds apart, each sent up to two seconds after it happened.

    An account's changes are numbered; the revision of every other one comes before that of its predecessor.
    """
    rng = random.Random(5)
    made, counts = [], Counter[int]()
    for number in range(450):
        account = rng.randrange(30)
        seq = counts[account]
        counts[account] += 1
        happened = START + number * timedelta(seconds=16)
        team = RETIRED if account == 7 and number < 110 else account % 6
        payload = {"account": account, "team": team, "amount": rng.randrange(1000), "seq": seq, "revision": seq ^ 1}
        arrived = happened + timedelta(milliseconds=rng.randrange(2000))
        made.append(Event("updating", "local", account, happened, arrived, payload))
    return sorted(made, key=lambda event: event.ingested)


@dataclass
class Production:
    """The app that ran live, its archive, and its replays."""

    spark: SparkSession
    home: Home
    loaded: Loaded
    app: App
    events: list[Event]
    live: Run | None = None
    replays: dict[tuple[str, Mode | None, Window], Run] = field(default_factory=dict)

    def output(self, sink: str, window: Window | None = None) -> Counter[Row]:
        return held(open_sink(sink, self.loaded.config, self.home), self.spark, window)

    def staged(self, run: Run, sink: str) -> Counter[Row]:
        (found,) = [one for one in open_staged(self.spark, self.home, run, self.loaded).sinks if one.name == sink]
        return counted(found.sink.as_stored(found.rows(self.spark)))

    def versions(self, run: Run, sink: str) -> Counter[Row]:
        """How many rows of each key there are in staging."""
        (found,) = [one for one in open_staged(self.spark, self.home, run, self.loaded).sinks if one.name == sink]
        staged = self.spark.table(found.table)
        assert BATCH in staged.columns
        return counted(staged.select(*found.sink.key))

    def verdict(self, run: Run) -> Any:
        """What validate found."""
        found = RunStore.open(self.home).run(run.id).validation
        assert found is not None
        return found

    def request(self, job: str, mode: Mode | None, window: Window, **options: Any) -> BackfillRequest:
        assert self.live is not None
        common = {"live_run": self.live.id, "allow_incomplete": True, "slice_span": 7 * MINUTE}
        return BackfillRequest(window, jobs=(job,), mode=mode, **{**common, **options})

    def replay(self, job: str, mode: Mode | None, window: Window, **options: Any) -> Run:
        """A backfill of one job; the same one is not made twice."""
        key = (job, mode, window)
        if key not in self.replays:
            request = self.request(job, mode, window, **options)
            self.replays[key] = run_backfill(self.spark, self.loaded, self.app, self.home, request)
            assert self.replays[key].state is State.FINISHED
        return self.replays[key]


def counted(rows: DataFrame) -> Counter[Row]:
    return Counter(tuple(map(_aware, row)) for row in rows.collect())


def held(sink: Sink, spark: SparkSession, window: Window | None = None) -> Counter[Row]:
    rows = sink.read(spark, window)
    assert rows is not None
    return counted(rows)


def _aware(value: Any) -> Any:
    """Spark answers times in the time zone of this process, without saying so."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value


@pytest.fixture(scope="module")
def production(spark: SparkSession, home: Home, broker: str) -> Iterator[Production]:
    events = history()
    create_topics(broker, ["updating"])
    with postgres() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in (("PORT", server.port), ("USER", server.user), ("PASSWORD", server.password)):
            patch.setenv(f"UPDATING_{name}", str(value))
        patch.setenv("REKAPPA_HOME", str(home.root))
        loaded = load(FOLDER)
        made = Production(spark, home, loaded, load_app(loaded), events)
        for first, last, most in ROUNDS:
            arrived = stretch(first, last if last < 120 else 240)
            produce(broker, [event for event in events if arrived.contains(event.ingested)], prefixes=False)
            capped = load(FOLDER, overrides=[f"sources.changes.candidates.live.max_records_per_batch={most}"])
            made.live = run_live(capped, load_app(capped), home, available_now=True, fresh=first == 0)
        run_routers(spark, loaded, home, available_now=True)
        yield made


def per_team(events: Iterable[Event], key: Callable[[Event], Row]) -> Counter[Row]:
    """The oracle of both aggregates, in plain Python."""
    counts, amounts = Counter[Row](), Counter[Row]()
    for event in events:
        counts[key(event)] += 1
        amounts[key(event)] += event.payload["amount"]
    return Counter((*one, count, amounts[one]) for one, count in counts.items())


def expected_windows(events: Iterable[Event], window: Window) -> Counter[Row]:
    def key(event: Event) -> Row:
        into = (event.event_time - START) % (10 * MINUTE)
        return event.event_time - into, event.payload["team"]

    found = per_team(events, key)
    return Counter({row: n for row, n in found.items() if window.contains(row[0])})


def last_of(events: Iterable[Event], rank: str, window: Window) -> Counter[Row]:
    """Each account's last change by rank, if it happened in the window."""
    best: dict[int, Event] = {}
    for event in events:
        held = best.get(event.key)
        if held is None or event.payload[rank] >= held.payload[rank]:
            best[event.key] = event
    return Counter(
        (event.key, event.payload["amount"], event.payload[rank], event.event_time)
        for event in best.values()
        if window.contains(event.event_time)
    )


def test_production_ran_batches_of_every_size_and_wrote_rows_again(production: Production) -> None:
    assert production.live is not None
    batches = RunStore.open(production.home).batches(production.live.id, "windowed")
    ends = [sum(end for at in batch.positions for end in at.ends.values()) for batch in batches]
    sizes = [later - earlier for earlier, later in pairwise(ends)]
    assert max(sizes) > 150
    assert 0 < min(size for size in sizes if size) <= 15
    assert len([size for size in sizes if size]) >= 6
    assert production.output("running") == per_team(production.events, lambda event: (event.payload["team"],))


@pytest.mark.parametrize("sink", ["windowed", "windowed_pg"])
@pytest.mark.parametrize("mode", [None, Mode.ORDERED, Mode.STRICT, Mode.EXACT])
def test_a_window_that_is_written_while_it_is_open(production: Production, mode: Mode | None, sink: str) -> None:
    run = production.replay("windowed", mode, MIDDLE)
    live = production.output(sink, MIDDLE)
    assert live == expected_windows(production.events, MIDDLE)
    assert production.staged(run, sink) == live
    versions = production.versions(run, sink)
    assert (max(versions.values()) > 1) == (mode is not None), "only micro-batches write a row again"


@pytest.mark.parametrize("mode", [Mode.BULK, Mode.ORDERED])
def test_windows_that_production_has_not_closed_are_there_too(production: Production, mode: Mode) -> None:
    run = production.replay("windowed", mode, PUBLISHED)
    live = production.output("windowed", PUBLISHED)
    assert live == expected_windows(production.events, PUBLISHED)
    assert production.staged(run, "windowed") == live


@pytest.mark.parametrize("sink", ["running", "running_pg"])
@pytest.mark.parametrize("mode", [None, Mode.STRICT, Mode.EXACT])
def test_a_count_since_the_beginning_of_time(production: Production, mode: Mode | None, sink: str) -> None:
    with pytest.raises(PlanError, match="depends on all of history") as refusal:
        make_plan(
            production.spark, production.loaded, production.app, production.home,
            production.request("running", Mode.ORDERED, UNTIL_NOW),
        )  # fmt: skip
    assert "--warm-up" in str(refusal.value.hint)
    run = production.replay("running", mode, UNTIL_NOW, warm_up=timedelta(hours=2))
    live, staged = production.output(sink), production.staged(run, sink)
    assert staged <= live
    left = {team for team, *_ in live} - {team for team, *_ in staged}
    # Exact slices are as wide as the files that hold them, so it may answer more keys than were written since then.
    assert left == {RETIRED} if mode is not Mode.EXACT else left <= {RETIRED}
    assert live == per_team(production.events, lambda event: (event.payload["team"],))


@pytest.mark.parametrize("mode", [None, Mode.EXACT])
def test_change_data_keeps_the_last_version_of_a_key(production: Production, mode: Mode | None) -> None:
    run = production.replay("current", mode, UNTIL_NOW)
    live = production.output("current", UNTIL_NOW)
    assert live == last_of(production.events, "seq", UNTIL_NOW)
    assert production.staged(run, "current") == live
    assert max(production.versions(run, "current").values()) > 1
    assert mode or run.spec["modes"] == {"current": Mode.STRICT}


def test_change_data_in_bulk_is_refused_when_a_key_comes_twice(production: Production) -> None:
    with pytest.raises(RunError, match=r"bulk mode keeps no order.*account=") as refusal:
        production.replay("current", Mode.BULK, UNTIL_NOW)
    assert "sinks.current.version" in str(refusal.value.hint)
    with pytest.raises(PlanError, match="may come several times"):
        production.replay("current", Mode.ORDERED, UNTIL_NOW)


@pytest.mark.parametrize("sink", ["ranked", "ranked_pg"])
@pytest.mark.parametrize("mode", [None, Mode.ORDERED])
def test_a_version_needs_no_order(production: Production, mode: Mode | None, sink: str) -> None:
    everything = stretch(0, 120)
    run = production.replay("ranked", mode, everything)
    assert mode or run.spec["modes"] == {"ranked": Mode.BULK}
    live = production.output(sink, everything)
    assert live == last_of(production.events, "revision", everything)
    by_arrival = last_of(production.events, "seq", everything)
    assert {row[:2] for row in live} != {row[:2] for row in by_arrival}, "the order did not matter"
    assert production.staged(run, sink) == live


@pytest.mark.parametrize("version", [None, "rank"])
def test_staging_is_reduced_as_the_sinks_themselves_do_it(production: Production, version: str | None) -> None:
    """The same batches into staging and into production: keys repeated, versions missing, equal and falling."""
    spark, home, given = production.spark, production.home, production.loaded.config
    rng = random.Random(8)
    common = {"key": "id", "event_time": "at", "version": version}
    server: Any = given.sinks["ranked_pg"]
    login = {"port": server.port, "user": server.user, "password": server.password, "database": "postgres"}
    sinks: dict[str, Any] = {
        "lake": {"type": "iceberg", "table": f"lake.updating.ruled_{version}", "mode": "upsert", **common},
        "pg": {"type": "postgres", "table": f"ruled_{version}", **login, **common},
    }
    config = AppConfig.model_validate({"app": "updating", "sources": given.sources, "sinks": sinks})
    batches = [
        [
            (rng.randrange(30), rng.choice([None, *range(6)]), START + rng.randrange(5) * MINUTE, rng.randrange(100))
            for _ in range(60)
        ]
        for _ in range(4)
    ]
    found = {}
    for name in sinks:
        live, staging = open_sink(name, config, home), staging_sink(config, f"ruled_{version}", name)
        for number, batch in enumerate(batches):
            rows = spark.createDataFrame(batch, "id BIGINT, rank BIGINT, at TIMESTAMP, value BIGINT")
            for sink in (live, staging):
                sink.prepare(spark, rows.schema)
                sink.write(rows, BatchId("ruled", name, number))
        staged = StagedSink(name, staging.table, live, stretch(0, 120))
        found[name] = counted(staged.rows(spark))
        assert found[name] == held(live, spark)
    assert found["lake"] == found["pg"]
    assert sum(found["lake"].values()) == len({row[0] for batch in batches for row in batch})


def _all(counted: DataFrame) -> DataFrame:
    return counted


def _busy(counted: DataFrame) -> DataFrame:
    return counted.where("n > 3")


def _of_one_team(counted: DataFrame) -> DataFrame:
    return counted.where("team = 3")


def _by_count(counted: DataFrame) -> DataFrame:
    return counted.selectExpr("n AS team", "team AS n")


@pytest.mark.parametrize(
    ("after", "revised"),
    [
        (_all, Revised(("n",))),
        (_busy, Revised(("n",), decide=True)),
        (_of_one_team, Revised(("n",))),
        (_by_count, Revised(("team",))),
    ],
)
def test_what_an_aggregate_revises_is_read_from_the_plan(
    spark: SparkSession, after: Callable[[DataFrame], DataFrame], revised: Revised
) -> None:
    from pyspark.sql import functions as F

    def probe(changes: DataFrame) -> DataFrame:
        return after(changes.groupBy("team").agg(F.count("*").alias("n")))

    app = App("probe")
    app.job(probe)
    ddl = record_ddl("team BIGINT, event_ts TIMESTAMP")
    shapes = analyse(spark, app.jobs["probe"], {"changes": ddl}, {"probe": None}, {"probe": "update"})
    assert shapes["probe"].revised == revised


def test_a_damaged_window_is_repaired_by_key_and_the_damage_comes_back(production: Production) -> None:
    """The last versions go through validate, publish and undo, into Iceberg and PostgreSQL."""
    import psycopg

    spark, config = production.spark, production.loaded.config
    spark.sql("UPDATE lake.updating.windowed SET n = n + 1000 WHERE team = 1")
    spark.sql("DELETE FROM lake.updating.running WHERE team = 2")
    sink: Any = config.sinks["windowed_pg"]
    login = {"host": sink.host, "port": sink.port, "user": sink.user, "password": sink.password.get_secret_value()}
    with psycopg.connect(dbname="postgres", **login) as connection:
        connection.execute("UPDATE windowed SET n = n + 1000 WHERE team = 1")
        connection.execute("DELETE FROM running WHERE team = 2")
    damaged = {name: production.output(name) for name in ("windowed", "windowed_pg", "running", "running_pg")}
    request = BackfillRequest(
        PUBLISHED, jobs=("windowed", "running"), mode=Mode.ORDERED, warm_up=timedelta(hours=2), allow_incomplete=True
    )
    run = run_backfill(spark, production.loaded, production.app, production.home, request)
    _call("validate", run.id, "--no-control", expect=1)
    found = {one["sink"]: one["comparison"] for one in production.verdict(run)["sinks"]}
    wrong = sum(row[1] == 1 for row in expected_windows(production.events, PUBLISHED))
    assert wrong > 1
    for name in ("windowed", "windowed_pg"):
        assert [found[name][kind] for kind in ("different", "missing", "extra")] == [wrong, 0, 0], found[name]
    for name in ("running", "running_pg"):
        assert [found[name][kind] for kind in ("different", "extra")] == [0, 1], found[name]
    _call("publish", run.id, "--unvalidated", "--yes")
    for name in ("windowed", "windowed_pg"):
        assert production.output(name, PUBLISHED) == expected_windows(production.events, PUBLISHED)
    for name in ("running", "running_pg"):
        assert production.output(name) == per_team(production.events, lambda event: (event.payload["team"],))
    _call("undo", run.id, "--yes")
    assert {name: production.output(name) for name in damaged} == damaged


def accounts_of(events: Iterable[Event], window: Window | None = None) -> Counter[Row]:
    """The oracle of change data with deletes: each account's last change, unless that closed it."""
    last = {event.key: event for event in events}
    return Counter(
        (event.key, event.payload["amount"], event.event_time)
        for event in last.values()
        if event.payload["amount"] % 3 and (window is None or window.contains(event.event_time))
    )


@pytest.mark.parametrize("mode", [None, Mode.EXACT])
def test_change_data_with_deletes(production: Production, mode: Mode | None) -> None:
    open_now = accounts_of(production.events)
    assert 0 < len(open_now) < 30
    assert production.output("opened") == open_now
    assert production.output("opened_pg") == open_now
    run = production.replay("opened", mode, UNTIL_NOW)
    for sink in ("opened", "opened_pg"):
        assert production.staged(run, sink) == accounts_of(production.events, UNTIL_NOW)


def test_what_change_data_deletes_is_gone_after_publishing_and_back_after_undo(production: Production) -> None:
    """Production missed that accounts were closed, and lost one that is open: validate, publish, undo."""
    import psycopg

    spark, config = production.spark, production.loaded.config
    last = {event.key: event for event in production.events if UNTIL_NOW.contains(event.ingested)}
    closed = next(key for key, event in last.items() if event.payload["amount"] % 3 == 0)
    lost = next(key for key, event in last.items() if event.payload["amount"] % 3)
    spark.sql(f"INSERT INTO lake.updating.opened VALUES ({closed}, 1, TIMESTAMP '{PUBLISHED.start.isoformat()}')")
    spark.sql(f"DELETE FROM lake.updating.opened WHERE account = {lost}")
    sink: Any = config.sinks["opened_pg"]
    login = {"host": sink.host, "port": sink.port, "user": sink.user, "password": sink.password.get_secret_value()}
    with psycopg.connect(dbname="postgres", **login) as connection:
        connection.execute("INSERT INTO opened VALUES (%s, 1, %s)", [closed, PUBLISHED.start])
        connection.execute("DELETE FROM opened WHERE account = %s", [lost])
    damaged = {name: production.output(name) for name in ("opened", "opened_pg")}
    request = production.request("opened", None, UNTIL_NOW)
    run = run_backfill(spark, production.loaded, production.app, production.home, request)
    _call("validate", run.id, "--no-control", expect=1)
    for one in production.verdict(run)["sinks"]:
        assert (one["comparison"]["missing"], one["comparison"]["extra"]) == (1, 1), one
    _call("publish", run.id, "--unvalidated", "--yes")
    for name in damaged:
        assert production.output(name) == accounts_of(production.events), name
    _call("undo", run.id, "--yes")
    assert {name: production.output(name) for name in damaged} == damaged


def _call(*words: str, expect: int = 0) -> None:
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == expect, result.output
