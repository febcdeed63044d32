"""Lookups that travel in time: tables change while the live app runs, and every replay gives what it gave.

Four kinds of lookup, one story: events of three hours come in three rounds; between them every table changes. An
oracle in plain Python says what each event must have seen.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from project import Project
from servers.postgres import PostgresServer

from rekappa import Lookup
from rekappa.archive.router import run_routers
from rekappa.config.bind import load_app
from rekappa.errors import AppError, SourceError
from rekappa.home import Home
from rekappa.lookup import Precedence
from rekappa.lookups.keep import keep
from rekappa.plan.plan import Mode
from rekappa.planning.make import make_plan
from rekappa.planning.request import BackfillRequest
from rekappa.produce.topics import create_topics
from rekappa.runs.backfill import run_backfill
from rekappa.staging.tables import staging_table
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 11, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
WINDOW = Window(START, START + 3 * HOUR)
CODE = """
from rekappa import App

app = App("APP")

@app.job
def priced(orders, titles, prices, accounts, ranks):
    seen = titles.join(orders.withWatermark("event_ts", "5 minutes"), at="event_ts")
    seen = prices.join(seen, at="event_ts", on={"sku": "show"})
    seen = accounts.join(seen, at="event_ts")
    return ranks.join(seen, at="event_ts").select("id", "event_ts", "title", "price", "plan", "rank")
"""
CONFIG = """
app: {app}
sources:
  orders:
    schema: id BIGINT, show BIGINT, account BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {{type: kafka, topic: {app}_orders, max_records_per_batch: 70}}
      past: {{type: iceberg, table: lake.{app}.orders}}
  rank_changes:
    schema: show BIGINT, rank BIGINT, lsn BIGINT, gone BOOLEAN, changed TIMESTAMP
    event_time: changed
    candidates:
      live: {{type: kafka, topic: {app}_ranks}}
      past: {{type: iceberg, table: lake.{app}.ranks}}
lookups:
  titles: {{type: iceberg, table: lake.{app}.titles, key: show, valid_from: since, deleted: gone}}
  prices: {{type: iceberg, table: lake.{app}.prices, key: sku, lead: 1 minute}}
  accounts: {{type: postgres, host: 127.0.0.1, port: {port}, database: {database}, user: {user},
              password: '{password}', table: accounts_{app}, key: account, lead: 1 minute}}
  ranks: {{type: kafka, source: rank_changes, key: show, sequence: lsn, deleted: gone, lag: 1 minute}}
sinks:
  priced: {{type: iceberg, table: lake.{app}.priced, event_time: event_ts}}
profiles:
  live: {{spark.sql.shuffle.partitions: 2}}
  backfill: {{spark.sql.shuffle.partitions: 2}}
"""
MINUTE = timedelta(minutes=1)
SHOWS, ACCOUNTS = range(6), range(4)
Moments = dict[int, list[tuple[datetime, Any]]]


@dataclass
class Truth:
    """What every table held when, noted by the test as it changes them."""

    titles: Moments = field(default_factory=dict)
    prices: Moments = field(default_factory=dict)
    accounts: Moments = field(default_factory=dict)
    ranks: dict[int, list[tuple[datetime, int, Any]]] = field(default_factory=dict)
    orders: list[tuple[int, int, int, datetime]] = field(default_factory=list)

    @staticmethod
    def at(moments: Moments, key: int, when: datetime) -> Any:
        known = [(since, value) for since, value in moments.get(key, []) if since <= when]
        return max(known, key=lambda one: one[0])[1] if known else None

    def rank(self, show: int, when: datetime) -> Any:
        """The change with the highest number among those that count by then."""
        known = [(number, value) for since, number, value in self.ranks.get(show, []) if since <= when]
        return max(known, key=lambda one: one[0])[1] if known else None

    def expected(self) -> Counter[tuple[Any, ...]]:
        return Counter(
            (
                number,
                self.at(self.titles, show, when),
                self.at(self.prices, show, when),
                self.at(self.accounts, account, when),
                self.rank(show, when),
            )
            for number, show, account, when in self.orders
        )


@dataclass
class Story:
    spark: SparkSession
    project: Project
    truth: Truth

    @property
    def name(self) -> str:
        return self.project.name

    def rows(self, table: str) -> Counter[tuple[Any, ...]]:
        found = self.spark.table(table).select("id", "title", "price", "plan", "rank").collect()
        return Counter(tuple(row) for row in found)

    def replay(self, mode: Mode) -> Counter[tuple[Any, ...]]:
        loaded = self.project.loaded
        request = BackfillRequest(WINDOW, mode=mode, allow_incomplete=True, slice_span=20 * MINUTE)
        run = run_backfill(self.spark, loaded, load_app(loaded), self.project.home, request)
        return self.rows(staging_table(loaded.config, run.id, "priced"))


def send(broker: str, topic: str, messages: list[tuple[datetime, dict[str, Any]]]) -> None:
    producer = Producer({"bootstrap.servers": broker})
    for moment, value in messages:
        text = json.dumps(value, default=lambda one: one.isoformat())
        producer.produce(topic, text.encode(), partition=0, timestamp=int(moment.timestamp() * 1000))
    assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def story(
    spark: SparkSession,
    home: Home,
    broker: str,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Story:
    import psycopg

    app, server, rng, truth = f"l{uuid4().hex[:8]}", postgres_server, random.Random(5), Truth()
    config = CONFIG.format(
        app=app, port=server.port, database=server.database, user=server.user, password=server.password
    )
    folder = tmp_path_factory.mktemp("lookups") / app
    project = Project.make(folder, home, broker, CODE.replace("APP", app), config)
    create_topics(broker, [f"{app}_orders", f"{app}_ranks"])
    spark.sql(f"CREATE NAMESPACE lake.{app}")
    spark.sql(
        f"CREATE TABLE lake.{app}.titles (show BIGINT, title STRING, since TIMESTAMP, gone BOOLEAN) USING iceberg"
    )
    spark.sql(f"CREATE TABLE lake.{app}.prices (sku BIGINT, price BIGINT) USING iceberg")
    database = psycopg.connect(
        host="127.0.0.1", port=server.port, dbname=server.database, user=server.user, password=server.password,
        autocommit=True,
    )  # fmt: skip
    database.execute(f"CREATE TABLE accounts_{app} (account bigint primary key, plan text)")
    loaded = project.loaded
    for number in range(3):
        begins = START + number * HOUR
        change(spark, truth, rng, app, begins, database.execute)
        for name in ("prices", "accounts"):
            since, seen = START - HOUR if number == 0 else None, begins + 20 * MINUTE
            assert keep(spark, loaded.config, name, since=since, now=partial(lambda moment: moment, seen)).changed
        changes = rank_changes(truth, rng, begins)
        send(broker, f"{app}_ranks", changes)
        orders = []
        for at in range(120):
            when = begins + at * MINUTE / 2
            order = (len(truth.orders), rng.choice(SHOWS), rng.choice(ACCOUNTS), when)
            truth.orders.append(order)
            orders.append((when, dict(zip(("id", "show", "account", "event_ts"), order, strict=True))))
        send(broker, f"{app}_orders", orders)
        run_routers(spark, loaded, home, available_now=True)
        project.live()
    database.close()
    return Story(spark, project, truth)


def change(
    spark: SparkSession, truth: Truth, rng: random.Random, app: str, begins: datetime, ask: Callable[..., Any]
) -> None:
    """Change the three tables, and note since when each change counts."""
    first = begins == START
    counted = START - HOUR if first else begins + 21 * MINUTE
    values = []
    for show in SHOWS:
        since = START - HOUR if first else begins + rng.randrange(60) * MINUTE
        gone = not first and show == 2
        title = None if gone else f"title {show} of {begins.hour}"
        truth.titles.setdefault(show, []).append((since, title))
        values.append(f"({show}, '{title}', timestamp'{since.isoformat()}', {str(gone).lower()})")
    spark.sql(f"INSERT INTO lake.{app}.titles VALUES {', '.join(values)}")
    prices = {show: 100 * show + begins.hour for show in SHOWS if first or show != 3}
    rows = ", ".join(f"({sku}, {price})" for sku, price in prices.items())
    spark.sql(f"INSERT OVERWRITE lake.{app}.prices VALUES {rows}")
    for show in SHOWS:
        truth.prices.setdefault(show, []).append((counted, prices.get(show)))
    ask(f"DELETE FROM accounts_{app}")
    for account in ACCOUNTS:
        plan = None if account == 1 and not first else f"plan {account + begins.hour}"
        if plan is not None:
            ask(f"INSERT INTO accounts_{app} VALUES ({account}, '{plan}')")
        truth.accounts.setdefault(account, []).append((counted, plan))


def rank_changes(truth: Truth, rng: random.Random, begins: datetime) -> list[tuple[datetime, dict[str, Any]]]:
    """Changes in the order in which they came, some of which are older than what came before."""
    made = []
    for at in range(30):
        came, show = begins + 2 * at * MINUTE, rng.choice(SHOWS)
        number = 1000 * begins.hour + at - (5 if rng.random() < 0.3 else 0) * 3
        gone = rng.random() < 0.15
        made.append((came, {"show": show, "rank": 10 * number, "lsn": number, "gone": gone, "changed": came}))
        known = [one for one in truth.ranks.setdefault(show, []) if one[1] >= number]
        if not known:
            truth.ranks[show].append((came + MINUTE, number, None if gone else 10 * number))
    return made


def test_production_saw_every_table_as_it_was_then(story: Story) -> None:
    expected = story.truth.expected()
    assert len({row[1:] for row in expected}) > 30
    assert any(value is None for row in expected for value in row)
    assert story.rows(f"lake.{story.name}.priced") == expected


@pytest.mark.parametrize("mode", [Mode.BULK, Mode.ORDERED, Mode.EXACT])
def test_every_replay_sees_what_production_saw(story: Story, mode: Mode) -> None:
    assert story.replay(mode) == story.truth.expected()


def test_with_the_tables_of_today_it_would_not(story: Story) -> None:
    """The ordinary way: every event gets what the table holds now."""
    spark, name = story.spark, story.name
    today = spark.sql(
        f"SELECT o.id, p.price FROM lake.{name}.orders o LEFT JOIN lake.{name}.prices p ON o.show = p.sku"
    ).collect()
    then = {row[0]: row[2] for row in story.truth.expected()}
    assert sum(row.price != then[row.id] for row in today) > len(today) / 3


def test_the_plan_names_lookups_and_what_they_lack(story: Story) -> None:
    loaded = story.project.loaded
    app = load_app(loaded)

    def planned(window: Window) -> Any:
        request = BackfillRequest(window, allow_incomplete=True)
        return make_plan(story.spark, loaded, app, story.project.home, request).jobs[0]

    job = planned(WINDOW)
    assert job.mode is Mode.BULK, "the join of a lookup needs no order"
    found = {one.name: one for one in job.lookups}
    assert set(found) == {"titles", "prices", "accounts", "ranks"}
    assert found["titles"].versions == 2 * len(SHOWS)
    assert found["prices"].first == START - HOUR
    assert not [text for text in job.warnings if "as it is now" in text], "a lookup is no table that is read as it is"
    early = planned(Window(START - 3 * HOUR, START - 2 * HOUR))
    assert [text for text in early.warnings if "'prices' knows nothing before 2026-10-31T23:00" in text]


def test_a_plan_reads_the_versions_that_it_was_made_on(story: Story) -> None:
    spark, loaded, home = story.spark, story.project.loaded, story.project.home
    app, table = load_app(loaded), f"lake.{story.name}.titles"
    request = BackfillRequest(WINDOW, allow_incomplete=True)
    plan = make_plan(spark, loaded, app, home, request)
    snapshot = spark.sql(f"SELECT snapshot_id FROM {table}.refs WHERE name = 'main'").collect()[0][0]
    spark.sql(f"INSERT INTO {table} SELECT show, 'corrected', timestampadd(MINUTE, 1, since), false FROM {table}")
    try:
        run = run_backfill(spark, loaded, app, home, request, plan=plan)
        assert story.rows(staging_table(loaded.config, run.id, "priced")) == story.truth.expected()
    finally:
        spark.sql(f"CALL lake.system.rollback_to_snapshot('{table.removeprefix('lake.')}', {snapshot})")


def test_versions_that_do_not_tell_are_refused_before_anything_starts(story: Story) -> None:
    spark, table = story.spark, f"lake.{story.name}.titles"
    snapshot = spark.sql(f"SELECT snapshot_id FROM {table}.refs WHERE name = 'main'").collect()[0][0]
    for row, told in (
        (f"(NULL, 'x', timestamp'{START.isoformat()}', false)", "has a row with show=None"),
        ("(7, 'x', NULL, false)", "has a row with show=7, since=None"),
        (f"(8, 'a', timestamp'{START.isoformat()}', false), (8, 'b', timestamp'{START.isoformat()}', false)",
         "has 2 rows with show=8"),
    ):  # fmt: skip
        spark.sql(f"INSERT INTO {table} VALUES {row}")
        try:
            with pytest.raises(SourceError, match=told):
                story.project.live()
            with pytest.raises(SourceError, match=told):
                story.replay(Mode.BULK)
        finally:
            spark.sql(f"CALL lake.system.rollback_to_snapshot('{table.removeprefix('lake.')}', {snapshot})")


def test_a_lookup_whose_table_is_missing_or_not_one_row_a_key_is_refused(story: Story) -> None:
    spark, config, name = story.spark, story.project.loaded.config, story.name
    prices = config.lookups["prices"]
    missing = prices.model_copy(update={"table": f"lake.{name}.nothing", "versions": f"lake.{name}.nothing_kept"})
    changed = config.model_copy(update={"lookups": {**config.lookups, "prices": missing}})
    with pytest.raises(SourceError, match="the table does not exist"):
        keep(spark, changed, "prices")
    spark.sql(f"CREATE TABLE lake.{name}.nothing (sku BIGINT, price BIGINT) USING iceberg")
    spark.sql(f"INSERT INTO lake.{name}.nothing VALUES (1, 2), (1, 3)")
    with pytest.raises(SourceError, match="2 rows with sku=1"):
        keep(spark, changed, "prices")


def test_the_snapshots_of_a_table_are_its_first_versions(story: Story) -> None:
    spark, config, name = story.spark, story.project.loaded.config, story.name
    again = config.lookups["prices"].model_copy(update={"versions": f"lake.{name}.prices_again"})
    config = config.model_copy(update={"lookups": {**config.lookups, "prices": again}})
    look = keep(spark, config, "prices")
    moments = [
        (row.committed_at.astimezone(UTC), row.snapshot_id)
        for row in spark.sql(f"SELECT * FROM lake.{name}.prices.snapshots ORDER BY committed_at").collect()
    ]
    assert look.changed
    assert len(moments) == 3
    kept = Lookup.of(spark.table(f"lake.{name}.prices_again"), "sku", "rekappa_valid_from", deleted="rekappa_deleted")
    for moment, number in moments:
        asked = spark.createDataFrame([(sku, moment) for sku in SHOWS], "sku BIGINT, at TIMESTAMP")
        seen = {row.sku: row.price for row in kept.join(asked, "at", how="inner").collect()}
        held = spark.sql(f"SELECT * FROM lake.{name}.prices VERSION AS OF {number}").collect()
        assert seen == {row.sku: row.price for row in held}
    assert keep(spark, config, "prices").changed == 0, "a look that finds nothing new writes nothing"


@pytest.mark.parametrize("order", Precedence)
def test_any_history_is_joined_as_an_oracle_says(spark: SparkSession, order: Precedence) -> None:
    """Hundreds of small histories at once, with ties, deletes and changes that come out of order."""
    rng = random.Random(9)
    rows, asked = [], []
    for key in range(300):
        for number in range(rng.randrange(6)):
            moment = START + rng.randrange(6) * MINUTE
            rows.append((key, f"{key}-{number}", moment, rng.randrange(1000) * 10 + number, rng.random() < 0.2))
        asked += [(key, START + rng.randrange(-1, 8) * MINUTE / 1) for _ in range(3)]
    held = spark.createDataFrame(rows, "k BIGINT, v STRING, since TIMESTAMP, seq BIGINT, gone BOOLEAN")
    events = spark.createDataFrame(asked, "k BIGINT, at TIMESTAMP")
    lookup = Lookup.of(held, "k", "since", sequence="seq", deleted="gone", order=order)

    def oracle(key: int, when: datetime) -> str | None:
        known = [row for row in rows if row[0] == key and row[2] <= when]
        rank = (lambda row: (row[2], row[3])) if order is Precedence.VALIDITY else (lambda row: (row[3],))
        best = max(known, key=rank, default=None)
        return None if best is None or best[4] else best[1]

    found = Counter((row.k, row["at"].astimezone(UTC), row.v) for row in lookup.join(events, "at").collect())
    assert found == Counter((key, when, oracle(key, when)) for key, when in asked)


def test_what_can_not_be_joined_is_refused(spark: SparkSession) -> None:
    held = spark.createDataFrame([(1, "x", START)], "k BIGINT, v STRING, since TIMESTAMP")
    lookup = Lookup.of(held, ["k"], "since")
    events = spark.createDataFrame([(1, START)], "k BIGINT, at TIMESTAMP")
    with pytest.raises(AppError, match="have no column 'when'"):
        lookup.join(events, "when")
    with pytest.raises(AppError, match="both it and the events have a column 'v'"):
        lookup.join(events.selectExpr("k", "at", "1 AS v"), "at")
    with pytest.raises(AppError, match="is a timestamp_ntz, not a TIMESTAMP"):
        lookup.join(events.selectExpr("k", "CAST(at AS TIMESTAMP_NTZ) AS at"), "at")
    with pytest.raises(AppError, match="is a date, not a TIMESTAMP"):
        Lookup.of(held.selectExpr("k", "v", "CAST(since AS DATE) AS since"), "k", "since")
    with pytest.raises(AppError, match="on 'z': its key is k"):
        lookup.join(events, "at", on={"z": "k"})
