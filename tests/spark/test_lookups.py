"""Lookups that travel in time: tables change while the live app runs, and every replay gives what it gave.

Every kind of lookup in one story: events of three hours come in three rounds; between them every table changes. An
oracle in plain Python says what each event must have seen. The service answers something else at every call, so that
one that is asked again shows.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from project import Project
from pyspark.sql import functions as F
from servers.postgres import PostgresServer

from rekappa import Lookup
from rekappa.archive.router import run_routers
from rekappa.config.bind import load_app
from rekappa.config.load import load
from rekappa.config.lookups import ServiceLookup
from rekappa.errors import ConfigError, PlanError, SourceError
from rekappa.home import Home
from rekappa.lookups.keep import keep
from rekappa.lookups.open import require_sound
from rekappa.lookups.record import AnswerRecord, record_of
from rekappa.lookups.versions import versions_of
from rekappa.plan.plan import Mode, Plan
from rekappa.planning.make import make_plan
from rekappa.planning.request import BackfillRequest
from rekappa.produce.topics import create_topics
from rekappa.runs.backfill import run_backfill
from rekappa.runs.live import run_live
from rekappa.staging.staged import open_staged
from rekappa.staging.tables import staging_table
from rekappa.store.record import Kind
from rekappa.store.runs import RunStore
from rekappa.timeline import Window
from rekappa.validate.html import page
from rekappa.validate.result import Cause, Outcome
from rekappa.validate.run import Request, validate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 11, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
WINDOW = Window(START, START + 3 * HOUR)
CODE = """
import json
from urllib.request import urlopen

from rekappa import App

app = App("APP")

def ask(keys):
    with urlopen("SERVICE", json.dumps(keys).encode()) as answer:
        return json.load(answer)

@app.job
def priced(orders, titles, prices, accounts, ranks, tags, owners, scores):
    seen = titles.join(orders.withWatermark("event_ts", "5 minutes"), at="event_ts")
    seen = prices.join(seen, at="event_ts", on={"sku": "show"})
    seen = accounts.join(seen, at="event_ts")
    seen = owners.join(tags.join(ranks.join(seen, at="event_ts"), at="event_ts"), at="event_ts")
    seen = scores.join(seen, ask, at="event_ts")
    return seen.select("id", "event_ts", "title", "price", "plan", "rank", "tag", "owner", "score")
"""
CONFIG = """
app: {app}
sources:
  orders:
    schema: id BIGINT, show BIGINT, account BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {{type: kafka, topic: {app}_orders}}
      past: {{type: iceberg, table: lake.{app}.orders}}
  rank_changes:
    schema: show BIGINT, rank BIGINT, lsn BIGINT, gone BOOLEAN, changed TIMESTAMP
    event_time: changed
    candidates:
      live: {{type: kafka, topic: {app}_ranks}}
      past: {{type: iceberg, table: lake.{app}.ranks}}
  tag_changes:
    schema: show BIGINT, tag STRING, tagged TIMESTAMP
    event_time: tagged
    candidates:
      live: {{type: kafka, topic: {app}_tags}}
      past: {{type: iceberg, table: lake.{app}.tags}}
  owner_changes:
    schema: before STRUCT<account BIGINT, owner STRING>, after STRUCT<account BIGINT, owner STRING>, op STRING,
            source STRUCT<lsn BIGINT>, changed TIMESTAMP
    event_time: changed
    candidates:
      live: {{type: kafka, topic: {app}_owners}}
      past: {{type: iceberg, table: lake.{app}.owners}}
lookups:
  titles: {{type: iceberg, table: lake.{app}.titles, key: show, valid_from: since, deleted: gone}}
  prices: {{type: iceberg, table: lake.{app}.prices, key: sku, lead: 1 minute}}
  accounts: {{type: postgres, host: 127.0.0.1, port: {port}, database: {database}, user: {user},
              password: '{password}', table: accounts_{app}, key: account, lead: 1 minute}}
  ranks: {{type: kafka, source: rank_changes, key: show, sequence: lsn, deleted: gone, lag: 1 minute}}
  tags: {{type: kafka, source: tag_changes, key: show, lag: 1 minute}}
  owners: {{type: kafka, source: owner_changes, key: account, envelope: debezium, sequence: source.lsn, lag: 1 minute}}
  scores: {{type: service, key: account, answer: score BIGINT, record: true}}
sinks:
  priced: {{type: iceberg, table: lake.{app}.priced, event_time: event_ts}}
profiles:
  live: {{spark.sql.shuffle.partitions: 2}}
  backfill: {{spark.sql.shuffle.partitions: 2}}
"""
MINUTE = timedelta(minutes=1)
SHOWS, ACCOUNTS = range(6), range(4)
LINE = 1_000_000
"""More than any number: those after a tombstone are compared with each other alone."""
Moments = dict[int, list[tuple[datetime, Any]]]


@dataclass
class Truth:
    """What every table held when, noted by the test as it changes them."""

    titles: Moments = field(default_factory=dict)
    prices: Moments = field(default_factory=dict)
    accounts: Moments = field(default_factory=dict)
    ranks: dict[int, list[tuple[datetime, int, Any]]] = field(default_factory=dict)
    tags: Moments = field(default_factory=dict)
    owners: dict[int, list[tuple[datetime, int, Any]]] = field(default_factory=dict)
    lines: Counter[int] = field(default_factory=Counter)
    orders: list[tuple[int, int, int, datetime]] = field(default_factory=list)

    @staticmethod
    def at(moments: Moments, key: int, when: datetime) -> Any:
        known = [(since, value) for since, value in moments.get(key, []) if since <= when]
        return max(known, key=lambda one: one[0])[1] if known else None

    @staticmethod
    def newest(changes: dict[int, list[tuple[datetime, int, Any]]], key: int, when: datetime) -> Any:
        """The change with the highest number among those that count by then, of equals the last."""
        known = [(number, at, value) for at, (since, number, value) in enumerate(changes.get(key, [])) if since <= when]
        return max(known, key=lambda one: one[:2])[2] if known else None

    def expected(self) -> Counter[tuple[Any, ...]]:
        return Counter(
            (
                number,
                self.at(self.titles, show, when),
                self.at(self.prices, show, when),
                self.at(self.accounts, account, when),
                self.newest(self.ranks, show, when),
                self.at(self.tags, show, when),
                self.newest(self.owners, account, when),
            )
            for number, show, account, when in self.orders
        )


@dataclass
class Story:
    spark: SparkSession
    project: Project
    truth: Truth
    service: Scores
    plans: list[Plan] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.project.name

    def rows(self, table: str) -> Counter[tuple[Any, ...]]:
        found = self.spark.table(table).select("id", "title", "price", "plan", "rank", "tag", "owner").collect()
        return Counter(tuple(row) for row in found)

    def scores(self, table: str) -> dict[int, int | None]:
        return {row.id: row.score for row in self.spark.table(table).select("id", "score").collect()}

    @property
    def production(self) -> str:
        return f"lake.{self.name}.priced"

    def replay(self, mode: Mode, meanwhile: AbstractContextManager[None] | None = None) -> str:
        """Where a replay of the whole window staged its rows; `meanwhile` begins once its plan is made."""
        loaded, home = self.project.loaded, self.project.home
        app, request = load_app(loaded), BackfillRequest(WINDOW, mode=mode, allow_incomplete=True, slice_span=HOUR)
        plan = make_plan(self.spark, loaded, app, home, request)
        self.plans.append(plan)
        with meanwhile or nullcontext():
            run = run_backfill(self.spark, loaded, app, home, request, plan=plan)
        return staging_table(loaded.config, run.id, "priced")


@contextmanager
def changed(spark: SparkSession, table: str, rows: str) -> Iterator[None]:
    """The table with rows more, and afterwards as it was."""
    snapshot = spark.sql(f"SELECT snapshot_id FROM {table}.refs WHERE name = 'main'").collect()[0][0]
    spark.sql(f"INSERT INTO {table} VALUES {rows}")
    try:
        yield
    finally:
        spark.sql(f"CALL lake.system.rollback_to_snapshot('{table.removeprefix('lake.')}', {snapshot})")


class Scores(ThreadingHTTPServer):
    """A service that gives another score at every call; the account it is about can be told from it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.asked: list[int] = []
        Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class _Answering(BaseHTTPRequestHandler):
    server: Scores

    def do_POST(self) -> None:
        answers = []
        for key in json.loads(self.rfile.read(int(self.headers["Content-Length"]))):
            self.server.asked.append(key["account"])
            answers.append({"score": 10 * len(self.server.asked) + key["account"]})
        body = json.dumps(answers).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: Any) -> None: ...


Message = tuple[datetime, dict[str, Any] | None, int | None]
"""When it came, its value (None: a tombstone), and Kafka's key."""


def send(broker: str, topic: str, messages: list[Message]) -> None:
    producer = Producer({"bootstrap.servers": broker})
    for moment, value, key in messages:
        text = None if value is None else json.dumps(value, default=lambda one: one.isoformat()).encode()
        named = None if key is None else str(key).encode()
        # Keys are in both partitions, as in a topic that got more of them.
        producer.produce(topic, text, key=named, partition=moment.minute % 2, timestamp=int(moment.timestamp() * 1000))
    assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def story(
    spark: SparkSession,
    home: Home,
    broker: str,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Story]:
    import psycopg

    service = Scores()
    app, server, rng, truth = f"l{uuid4().hex[:8]}", postgres_server, random.Random(5), Truth()
    config = CONFIG.format(
        app=app, port=server.port, database=server.database, user=server.user, password=server.password
    )
    folder = tmp_path_factory.mktemp("lookups") / app
    project = Project.make(folder, home, broker, CODE.replace("APP", app).replace("SERVICE", service.url), config)
    create_topics(broker, [f"{app}_{topic}" for topic in ("orders", "ranks", "tags", "owners")])
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
        send(broker, f"{app}_tags", tag_changes(truth, rng, begins))
        send(broker, f"{app}_owners", owner_changes(truth, rng, begins))
        orders: list[Message] = []
        for at in range(120):
            when = begins + at * MINUTE / 2
            order = (len(truth.orders), rng.choice(SHOWS), rng.choice(ACCOUNTS), when)
            truth.orders.append(order)
            orders.append((when, dict(zip(("id", "show", "account", "event_ts"), order, strict=True)), None))
        send(broker, f"{app}_orders", orders)
        run_routers(spark, loaded, home, available_now=True)
        project.live()
        if number == 1:
            # Of what the service answered, one part is in the record from now on and the other in files.
            assert scores_record(project).collect(spark, timedelta()) > 0
    database.close()
    yield Story(spark, project, truth, service)
    service.shutdown()
    service.server_close()


def scores_record(project: Project) -> AnswerRecord:
    config = project.loaded.config
    lookup = config.lookups["scores"]
    assert isinstance(lookup, ServiceLookup)
    return record_of(config, project.home, "scores", lookup)


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


def rank_changes(truth: Truth, rng: random.Random, begins: datetime) -> list[Message]:
    """Changes in the order in which they came, some of which are older than what came before."""
    made: list[Message] = []
    for at in range(30):
        came, show = begins + 2 * at * MINUTE, rng.choice(SHOWS)
        number = 1000 * begins.hour + at - (5 if rng.random() < 0.3 else 0) * 3
        gone = rng.random() < 0.15
        made.append((came, {"show": show, "rank": 10 * number, "lsn": number, "gone": gone, "changed": came}, None))
        truth.ranks.setdefault(show, []).append((came + MINUTE, number, None if gone else 10 * number))
    return made


def tag_changes(truth: Truth, rng: random.Random, begins: datetime) -> list[Message]:
    """A compacted topic: a key's newest message holds, and one without a value ends it."""
    made: list[Message] = []
    for at in range(20):
        came, show = begins + 3 * at * MINUTE, rng.choice(SHOWS)
        tag = None if rng.random() < 0.3 else f"tag {begins.hour}.{at}"
        made.append((came, tag and {"show": show, "tag": tag, "tagged": came}, show))  # type: ignore[arg-type]
        truth.tags.setdefault(show, []).append((came + MINUTE, tag))
    return made


def owner_changes(truth: Truth, rng: random.Random, begins: datetime) -> list[Message]:
    """As Debezium writes them: before, after and op, a tombstone after each delete; some come late."""
    made: list[Message] = []
    for at in range(20):
        came, account = begins + 3 * at * MINUTE, rng.choice(ACCOUNTS)
        number = 1000 * begins.hour + at - (4 if rng.random() < 0.3 else 0) * 3
        gone, row = rng.random() < 0.2, {"account": account, "owner": f"owner {number}"}
        value = {"before": row if gone else None, "after": None if gone else row, "op": "d" if gone else "u"}
        made.append((came, {**value, "source": {"lsn": number}}, account))
        place = truth.lines[account] * LINE + number
        if gone:
            # A tombstone ends the key, whatever its number: it is the last word of a compacted topic.
            made.append((came, None, account))
            truth.lines[account] += 1
            place = truth.lines[account] * LINE - LINE // 2
        truth.owners.setdefault(account, []).append((came + MINUTE, place, None if gone else row["owner"]))
    # Somebody empties the table, and something that has no key is in the topic.
    came, number = begins + 61 * MINUTE, 1000 * begins.hour + 20
    nobody = {"account": None, "owner": "nobody"}
    for op, after in (("t", None), ("u", nobody)):
        told = {"before": None, "after": after, "op": op, "source": {"lsn": number}}
        made.append((came, told, None))
    for account in ACCOUNTS:
        place = truth.lines[account] * LINE + number
        truth.owners.setdefault(account, []).append((came + MINUTE, place, None))
    return made


def test_production_saw_every_table_as_it_was_then(story: Story) -> None:
    expected = story.truth.expected()
    assert len({row[1:] for row in expected}) > 30
    assert any(value is None for row in expected for value in row)
    assert story.rows(story.production) == expected


def test_the_service_was_asked_once_for_each_order(story: Story) -> None:
    """However often a sink reads its rows."""
    orders = {number: account for number, _, account, _ in story.truth.orders}
    assert Counter(story.service.asked) == Counter(orders.values())
    found = story.scores(story.production)
    assert {number: int(score or -1) % 10 for number, score in found.items()} == orders
    assert len(set(found.values())) == len(orders)


@pytest.mark.parametrize("mode", [Mode.BULK, Mode.ORDERED, Mode.EXACT])
def test_every_replay_sees_what_production_saw(story: Story, mode: Mode) -> None:
    """Also if a table is corrected once the plan is made: what was planned is what is read."""
    asked, since = len(story.service.asked), (START + HOUR / 2).isoformat()
    with_correction = changed(story.spark, f"lake.{story.name}.titles", f"(1, 'x', timestamp'{since}', false)")
    staged = story.replay(mode, with_correction)
    assert story.rows(staged) == story.truth.expected()
    assert story.scores(staged) == story.scores(story.production)
    assert len(story.service.asked) == asked, "a replay asks nobody"


def test_with_the_tables_of_today_it_would_not(story: Story) -> None:
    """The ordinary way: every event gets what the table holds now."""
    spark, config = story.spark, story.project.loaded.config
    columns = {"titles": 1, "prices": 2, "accounts": 3, "ranks": 4, "tags": 5, "owners": 6}
    orders = spark.table(f"lake.{story.name}.orders").select("id", "show", "account", F.col("show").alias("sku"))
    for name, place in columns.items():
        versions = versions_of(config, name)
        now = versions.opened(versions.read(spark)).held_now()
        value = next(column for column in now.columns if column in ("title", "price", "plan", "rank", "tag", "owner"))
        key = versions.key[0]
        today = orders.join(now.select(key, value), key, "left").select("id", value).collect()
        then = {row[0]: row[place] for row in story.truth.expected()}
        assert sum(row[value] != then[row.id] for row in today) > len(today) / 3, name


def test_the_plan_names_lookups_and_what_they_lack(story: Story) -> None:
    loaded = story.project.loaded
    app = load_app(loaded)

    def planned(window: Window, *overrides: str) -> Any:
        request = BackfillRequest(window, allow_incomplete=True)
        own = load(story.project.folder, overrides=overrides) if overrides else loaded
        return make_plan(story.spark, own, app, story.project.home, request).jobs[0]

    job = planned(WINDOW)
    assert job.mode is Mode.BULK, "the join of a lookup needs no order"
    found = {one.name: one for one in job.lookups}
    assert set(found) == {"titles", "prices", "accounts", "ranks", "tags", "owners", "scores"}
    asked = found["scores"].calls
    assert asked is not None
    assert (asked.calls, asked.unanswered) == (len(story.truth.orders), 0)
    assert found["titles"].versions == 2 * len(SHOWS)
    assert found["prices"].first == START - HOUR
    assert not [text for text in job.warnings if "as it is now" in text], "a lookup is no table that is read as it is"
    before = Window(START - 3 * HOUR, START - 2 * HOUR)
    with pytest.raises(PlanError, match=r"lookup 'prices' .* knows nothing before 2026-10-31T23:00") as refused:
        planned(before)
    assert "from --start 2026-10-31T23:00Z on" in str(refused.value.hint)
    assert not [text for text in planned(Window(START - HOUR, START)).warnings if "'titles' knows nothing" in text]
    assert "Lookup 'owners' leaves out changes that tell no key: 3." in job.warnings
    early = planned(before, "lookups.prices.unknown_past=accept", "lookups.accounts.unknown_past=accept")
    assert [text for text in early.warnings if "'titles' knows nothing before 2026-10-31T23:00" in text]


def test_versions_that_do_not_tell_are_refused_before_anything_starts(story: Story) -> None:
    spark, table = story.spark, f"lake.{story.name}.titles"
    versions = versions_of(story.project.loaded.config, "titles")
    moment = f"timestamp'{START.isoformat()}'"
    for rows, told in (
        (f"(NULL, 'x', {moment}, false)", "has a row with show=None"),
        ("(7, 'x', NULL, false)", "has a row with show=7, since=None"),
        (f"(8, 'a', {moment}, false), (8, 'b', {moment}, false)", "has 2 rows with show=8"),
    ):
        added = spark.sql(f"SELECT * FROM VALUES {rows} AS t(show, title, since, gone)")
        with pytest.raises(ConfigError, match=told):
            require_sound(versions, spark.table(table).union(added))
    with changed(spark, table, f"(8, 'a', {moment}, false), (8, 'b', {moment}, false)"):
        with pytest.raises(ConfigError, match="has 2 rows with show=8"):
            story.project.live()
        with pytest.raises(ConfigError, match="has 2 rows with show=8"):
            story.replay(Mode.BULK)


def test_a_lookup_whose_table_is_missing_or_not_one_row_a_key_is_refused(story: Story) -> None:
    spark, config, name = story.spark, story.project.loaded.config, story.name
    prices = config.lookups["prices"]
    missing = prices.model_copy(update={"table": f"lake.{name}.nothing", "versions": f"lake.{name}.nothing_kept"})
    changed = config.model_copy(update={"lookups": {**config.lookups, "prices": missing}})
    with pytest.raises(SourceError, match=f"lookup 'prices': the table lake.{name}.nothing does not exist"):
        keep(spark, changed, "prices")
    nowhere = config.lookups["accounts"].model_copy(update={"table": "nowhere", "versions": f"lake.{name}.nowhere"})
    with pytest.raises(SourceError, match=r"lookup 'accounts': .* table nowhere: it does not exist"):
        keep(spark, config.model_copy(update={"lookups": {"accounts": nowhere}}), "accounts")
    spark.sql(f"CREATE TABLE lake.{name}.nothing (sku BIGINT, price BIGINT) USING iceberg")
    spark.sql(f"INSERT INTO lake.{name}.nothing VALUES (1, 2), (1, 3)")
    with pytest.raises(SourceError, match="2 rows with sku=1"):
        keep(spark, changed, "prices")
    spark.sql(f"INSERT OVERWRITE lake.{name}.nothing VALUES (NULL, 2)")
    with pytest.raises(SourceError, match="1 rows with sku=None"):
        keep(spark, changed, "prices")
    spark.sql(f"INSERT OVERWRITE lake.{name}.nothing VALUES (1, 2)")
    spark.sql(f"DROP TABLE IF EXISTS lake.{name}.nothing_kept")
    assert keep(spark, changed, "prices", since=START).changed == 1
    spark.sql(f"ALTER TABLE lake.{name}.nothing ADD COLUMN unit STRING")
    with pytest.raises(SourceError, match="Cannot keep lookup 'prices': column 'unit' is string in its table and not"):
        keep(spark, changed, "prices")
    # What a plan and a live run refuse of a table that holds its versions itself, each with the lookup's name.
    titles = config.lookups["titles"]
    for told, said in (
        ({"table": f"lake.{name}.nothing"}, r"have no column 'show' \(lookup 'titles', lake"),
        ({"key": ("title",), "valid_from": "show"}, r"it is a bigint, not a TIMESTAMP \(lookup 'titles', lake"),
        ({"table": f"lake.{name}.nowhere"}, r"Cannot read lookup 'titles': its table .* does not exist"),
    ):
        wrong = config.model_copy(update={"lookups": {**config.lookups, "titles": titles.model_copy(update=told)}})
        loaded = replace(story.project.loaded, config=wrong)
        request = BackfillRequest(WINDOW, allow_incomplete=True)
        with pytest.raises(ConfigError, match=said):
            make_plan(spark, loaded, load_app(loaded), story.project.home, request)
    with pytest.raises(ConfigError, match=said):
        run_live(loaded, load_app(loaded), story.project.home, available_now=True)


def test_what_a_table_was_before_the_first_look_are_its_first_versions(story: Story) -> None:
    """Its own snapshots tell, also one that a rollback undid."""
    spark, config, table = story.spark, story.project.loaded.config, f"lake.{story.name}.costs"
    costs = config.lookups["prices"].model_copy(update={"table": table, "versions": f"{table}_kept"})
    config = config.model_copy(update={"lookups": {"costs": costs}})
    spark.sql(f"CREATE TABLE {table} (sku BIGINT, price BIGINT) USING iceberg")
    spark.sql(f"INSERT INTO {table} VALUES (0, 1), (1, 1)")
    first = spark.sql(f"SELECT snapshot_id FROM {table}.refs").collect()[0][0]
    spark.sql(f"INSERT OVERWRITE {table} VALUES (0, 2), (2, 2)")
    spark.sql(f"CALL lake.system.rollback_to_snapshot('{table.removeprefix('lake.')}', {first})")
    spark.sql(f"INSERT INTO {table} VALUES (3, 3)")
    assert keep(spark, config, "costs").changed == 2 + 3 + 3 + 1
    moments = spark.sql(f"SELECT made_current_at AS at, snapshot_id FROM {table}.history ORDER BY 1").collect()
    assert len(moments) == 4
    kept = Lookup.of(spark.table(f"{table}_kept"), "sku", "rekappa_valid_from", deleted="rekappa_deleted")
    asked = spark.createDataFrame([(sku, one["at"]) for sku in range(4) for one in moments], "sku BIGINT, at TIMESTAMP")
    seen = {(row["at"], row.sku): row.price for row in kept.join(asked, "at", how="inner").collect()}
    for one in moments:
        held = spark.sql(f"SELECT * FROM {table} VERSION AS OF {one.snapshot_id}").collect()
        assert {row.sku: row.price for row in held} == {
            sku: price for (moment, sku), price in seen.items() if moment == one["at"]
        }
    assert keep(spark, config, "costs").changed == 0, "a look that finds nothing new writes nothing"


def test_a_correction_of_the_past_is_named_as_the_cause_and_exact_mode_undoes_it(story: Story) -> None:
    """Production saw the table before it was corrected: bulk sees the correction, and `validate` says so."""
    spark, home, table = story.spark, story.project.home, f"lake.{story.name}.titles"
    since = START + HOUR / 2
    spark.sql(f"INSERT INTO {table} VALUES (1, 'corrected', timestamp'{since.isoformat()}', false)")
    try:
        assert story.rows(story.replay(Mode.EXACT)) == story.truth.expected()
        planned = next(one for one in story.plans[-1].jobs[0].lookups if one.name == "titles")
        assert planned.versions == 2 * len(SHOWS), "of the snapshot that production read"
        staged = story.replay(Mode.BULK)
        corrected = sum(row[1] == "corrected" for row in story.rows(staged).elements())
        assert corrected > 5
        run = RunStore.open(home).runs(story.name, Kind.BACKFILL)[0]
        verdict = validate(spark, open_staged(spark, home, run), Request())
        found = verdict.sinks[0].comparison
        assert found is not None
        assert (found.caused_by(Cause.LOOKUP), found.unexplained) == (found.differences, 0), found.notes
        # Without a key a row that was changed is one that is missing and one that is extra.
        assert found.differences == 2 * corrected
        assert verdict.outcome is Outcome.NEEDS_YES
        assert "lookup changed" in page(verdict)
        assert "lookup changed" in json.dumps(verdict.as_json())
        assert [text for text in found.notes if "lookup 'titles' was changed after production had read it" in text]
        # Once the snapshot that production read has expired, exact mode can't give what production gave.
        spark.sql(
            f"CALL lake.system.expire_snapshots(table => '{table.removeprefix('lake.')}', "
            "older_than => timestamp'9999-01-01 00:00:00', retain_last => 1)"
        )
        with pytest.raises(PlanError, match=r"the snapshots of .* before .* have expired"):
            story.replay(Mode.EXACT)
    finally:
        spark.sql(f"DELETE FROM {table} WHERE title = 'corrected'")


def test_calls_without_an_answer_are_refused_asked_or_null(story: Story) -> None:
    """With an empty record only the newest batches, whose answers are still in files, can be answered."""
    spark, home, folder = story.spark, story.project.home, story.project.folder
    scores_record(story.project).collect(spark, timedelta())
    table = f"lookups.scores.table=lake.{story.name}.no_scores"
    request = BackfillRequest(WINDOW, mode=Mode.BULK, allow_incomplete=True)
    before, asked = story.scores(story.production), len(story.service.asked)

    def loaded(missing: str) -> Any:
        told = (table, f"lookups.scores.missing={missing}", "lookups.scores.max_calls_per_second=2000")
        return load(folder, overrides=told)

    def planned(missing: str) -> Any:
        found = make_plan(spark, loaded(missing), load_app(loaded(missing)), home, request).jobs[0]
        return found, next(one.calls for one in found.lookups if one.name == "scores")

    with pytest.raises(PlanError, match=r"of 360 calls of service 'scores' have no recorded answer") as refused:
        planned("refuse")
    assert "--set lookups.scores.missing=call" in str(refused.value.hint)
    job, calls = planned("null")
    assert 0 < calls.unanswered < calls.calls == len(story.truth.orders)
    assert [text for text in job.warnings if f"{calls.unanswered} calls have no recorded answer" in text]
    assert len(story.service.asked) == asked, "a plan asks nobody"
    run = run_backfill(spark, loaded("call"), load_app(loaded("call")), home, request)
    after = story.scores(staging_table(loaded("call").config, run.id, "priced"))
    assert len(story.service.asked) == asked + calls.unanswered
    assert sum(after[number] == score for number, score in before.items()) == calls.calls - calls.unanswered
    assert planned("refuse")[1].unanswered == 0, "what a replay asked is kept too"
