"""Lookups as rekappa.yaml declares them: which are refused, and how a job gets them."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rekappa import App
from rekappa.config.bind import load_app
from rekappa.config.load import Loaded, load
from rekappa.config.lookups import ServiceLookup
from rekappa.errors import AppError, ConfigError, PlanError
from rekappa.lookup import Precedence
from rekappa.lookups.keep import kept_lookups
from rekappa.lookups.planned import require_known
from rekappa.lookups.versions import versions_of
from rekappa.plan.encode import decode_head, encode_head
from rekappa.plan.margins import Margins
from rekappa.plan.plan import CallsPlan, JobPlan, LookupPlan, Mode, Plan
from rekappa.plan.report import plan_report, plan_summary
from rekappa.timeline import Window, parse_instant

BASE = """
app: shop
sources:
  orders:
    schema: id BIGINT, sku BIGINT, note STRING, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {type: kafka, topic: orders}
      past: {type: iceberg, table: lake.shop.orders}
  rows:
    schema: before STRUCT<sku BIGINT, price INT>, after STRUCT<sku BIGINT, price INT>, op STRING,
            source STRUCT<lsn BIGINT>, changed TIMESTAMP
    event_time: changed
    candidates:
      live: {type: kafka, topic: rows}
      past: {type: iceberg, table: lake.shop.rows}
lookups:
  prices: LOOKUP
sinks:
  priced: {type: iceberg, table: lake.shop.priced}
"""
CODE = """
from rekappa import App
app = App("shop")

@app.job
def priced(orders, prices):
    return prices.join(orders, at="event_ts")
"""


def shop(folder: Path, lookup: str) -> Loaded:
    (folder / "app.py").write_text(CODE)
    (folder / "rekappa.yaml").write_text(BASE.replace("LOOKUP", lookup))
    return load(folder, environ={})


@pytest.mark.parametrize("word", ["null", '"null"'])
def test_missing_answers_are_nulls_however_the_word_is_written(tmp_path: Path, word: str) -> None:
    found = shop(tmp_path, f"{{type: service, key: sku, answer: price INT, missing: {word}}}").config.lookups["prices"]
    assert isinstance(found, ServiceLookup)
    assert found.missing == "null"


@pytest.mark.parametrize(
    ("lookup", "said"),
    [
        ("{type: iceberg, table: lake.ref.prices}", "key"),
        ("{type: iceberg, table: lake.ref.prices, key: []}", "key"),
        ("{type: iceberg, table: lake.ref.prices, key: [sku, sku]}", "names a column twice"),
        ("{type: iceberg, table: prices, key: sku}", "name catalog, namespace and table"),
        ("{type: iceberg, table: attic.ref.prices, key: sku}", "names the unknown catalog 'attic'"),
        ("{type: iceberg, table: lake.ref.prices, key: sku, deleted: gone}", "needs valid_from"),
        ("{type: iceberg, table: lake.ref.prices, key: sku, valid_from: a, versions: lake.a.b}", "exclude each other"),
        ("{type: iceberg, table: lake.ref.prices, key: sku, lead: 0}", "lead"),
        ("{type: kafka, source: nothing, key: sku}", "'nothing', which is no source"),
        ("{type: kafka, source: orders, key: shelf}", "'shelf', which is no column of source 'orders'"),
        ("{type: kafka, source: orders, key: sku, sequence: lsn}", "'lsn', which is no column"),
        ("{type: mysql, table: prices, key: sku}", "mysql"),
        ("{type: service, key: sku}", "answer"),
        ("{type: service, key: sku, answer: ''}", "answer"),
        ("{type: service, key: sku, answer: price MONEY}", "MONEY"),
        ("{type: service, key: sku, answer: sku BIGINT}", "both have a column 'sku'"),
        ("{type: service, key: sku, answer: price INT, missing: guess}", "missing"),
        ("{type: service, key: sku, answer: price INT, max_calls_per_second: 0}", "max_calls_per_second"),
        ("{type: service, key: sku, answer: price INT, table: answers}", "name catalog, namespace and table"),
        ("{type: iceberg, table: lake.ref.prices, key: sku, unknown_past: guess}", "unknown_past"),
        ("{type: iceberg, table: lake.a.b, key: sku, versions: lake.a.b}", "which is the table of lookup 'prices'"),
        ("{type: postgres, database: d, table: t, key: sku, versions: lake.shop.orders}", "the archive of source"),
        ("{type: iceberg, table: lake.a.b, key: sku, versions: lake.shop.PRICED}", "which is that of sink 'priced'"),
        ("{type: iceberg, table: lake.a.b, key: sku, as_of: event_time}", "lookup.join(events, at=COLUMN)"),
        ("{type: kafka, source: orders, key: sku, sequence: note}", "of texts '9' comes after '10'"),
        ("{type: kafka, source: orders, key: sku, deleted: id}", "'id' as deleted, which is BIGINT, not BOOLEAN"),
        ("{type: kafka, source: orders, key: sku, envelope: debezium}", "declares no before STRUCT<…>, after"),
        ("{type: kafka, source: rows, key: id, envelope: debezium}", "'id', which is no column of before of source"),
        ("{type: kafka, source: rows, key: sku, envelope: debezium, deleted: op}", "can't have deleted"),
        ("{type: kafka, source: rows, key: sku, envelope: debezium, sequence: source.id}", "'source.id', which is no"),
        ("{type: kafka, source: rows, key: sku, envelope: debezium, sequence: op}", "which is STRING"),
    ],
)
def test_what_can_not_be_looked_up_is_refused_when_the_file_is_read(tmp_path: Path, lookup: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        shop(tmp_path, lookup)
    assert said in refused.value.message


@pytest.mark.parametrize(
    ("lookup", "table", "since", "kept"),
    [
        ("{type: iceberg, table: lake.ref.prices, key: sku, valid_from: since}", "lake.ref.prices", "since", False),
        ("{type: iceberg, table: lake.ref.prices, key: sku}", "lake.shop_lookups.prices", "rekappa_valid_from", True),
        ("{type: iceberg, table: lake.a.b, key: sku, versions: lake.a.c}", "lake.a.c", "rekappa_valid_from", True),
        ("{type: postgres, database: d, table: t, key: sku}", "lake.shop_lookups.prices", "rekappa_valid_from", True),
    ],
)
def test_where_versions_are(tmp_path: Path, lookup: str, table: str, since: str, kept: bool) -> None:
    config = shop(tmp_path, lookup).config
    found = versions_of(config, "prices")
    assert (found.table, found.valid_from, found.order) == (table, since, Precedence.VALIDITY)
    assert list(kept_lookups(config)) == (["prices"] if kept else [])


def test_changes_are_read_from_the_archive_of_their_topic(tmp_path: Path) -> None:
    found = versions_of(shop(tmp_path, "{type: kafka, source: orders, key: sku, sequence: id}").config, "prices")
    assert (found.table, found.sequence, found.order) == ("lake.shop.orders", "__rank", Precedence.ARRIVAL)
    rows = "{type: kafka, source: rows, key: sku, envelope: debezium, sequence: source.lsn}"
    assert versions_of(shop(tmp_path, rows).config, "prices").table == "lake.shop.rows"


def test_a_parameter_is_a_source_or_a_lookup(tmp_path: Path) -> None:
    loaded = shop(tmp_path, "{type: iceberg, table: lake.ref.prices, key: sku}")
    job = load_app(loaded).jobs["priced"]
    assert (job.sources, job.lookups) == (("orders",), ("prices",))

    class Joined:
        isStreaming = True

    class Prices:
        def join(self, orders: Any, at: str) -> Joined:
            assert (orders, at) == ("the orders", "event_ts")
            return Joined()

    given = replace(job, given={"prices": Prices()})  # type: ignore[dict-item]
    assert isinstance(given.results({"orders": "the orders"})["priced"], Joined)  # type: ignore[dict-item]


def test_a_job_of_lookups_alone_and_a_name_that_is_both_are_refused(tmp_path: Path) -> None:
    loaded = shop(tmp_path, "{type: iceberg, table: lake.ref.prices, key: sku}")
    (tmp_path / "app.py").write_text(CODE.replace("orders, prices", "prices"))
    with pytest.raises(AppError, match="reads lookups alone"):
        load_app(loaded)
    text = (tmp_path / "rekappa.yaml").read_text().replace("  prices:", "  orders:")
    (tmp_path / "rekappa.yaml").write_text(text)
    with pytest.raises(ConfigError, match="has the name of a source"):
        load(tmp_path, environ={})


def test_only_a_lookup_that_is_kept_can_be_looked_at(tmp_path: Path) -> None:
    config = shop(tmp_path, "{type: iceberg, table: lake.ref.prices, key: sku, valid_from: since}").config
    with pytest.raises(ConfigError, match="Cannot keep versions of lookup 'prices'"):
        kept_lookups(config, "prices")
    with pytest.raises(ConfigError, match="Cannot find lookup 'nothing'"):
        versions_of(config, "nothing")


def test_a_plan_keeps_the_versions_that_it_was_made_on() -> None:
    window = Window(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC))
    lookups: tuple[LookupPlan, ...] = (LookupPlan("prices", "lake.a.b", 7, 3, window.start),)
    lookups += (LookupPlan("empty", "lake.a.c", None, 0, None),)
    for calls in (CallsPlan("call", window.end), CallsPlan("null", window.end, 9, 2, window)):
        lookups += (LookupPlan("risk", "lake.a.d", None, 7, window.start, calls),)
    zero = window.length * 0
    job = JobPlan("priced", ("priced",), Mode.BULK, "", zero, "", zero, "", window, (), lookups=lookups)
    plan = Plan("shop", window, (), (job,))
    assert decode_head(encode_head(plan), {}) == plan
    said = {fact.label: f"{fact.value}; {fact.why}" for fact in plan_report(plan).jobs[0].facts}
    assert said["lookup prices"].startswith("lake.a.b as of each event's time; 3 versions begin in what is read")
    assert said["service risk"] == (
        "answers from lake.a.d; 9 calls, 2 without an answer (nulls), recorded since 2026-11-01T00:00Z"
    )
    told = [one["calls"] for one in plan_summary(plan)["jobs"][0]["lookups"]]
    assert [one and (one["calls"], one["unanswered"], one["missing"]) for one in told] == [
        None, None, (None, None, "call"), (9, 2, "null"),
    ]  # fmt: skip


@pytest.mark.parametrize("before", [timedelta(), timedelta(hours=2)])
def test_the_start_that_a_refusal_names_can_be_had(before: timedelta) -> None:
    """What is read for the sake of clocks alone does not count: no row of the output comes from there."""
    oldest, hour = datetime(2026, 11, 1, 4, 49, 29, 256000, tzinfo=UTC), timedelta(hours=1)
    margins = Margins(before=before, ahead=timedelta(minutes=1))
    early = Window(oldest + before - timedelta(microseconds=1), oldest + before + hour)
    with pytest.raises(PlanError, match=r"knows nothing before 2026-11-01T04:49:29\.256") as refused:
        require_known("priced", "prices", "lake.a.b", oldest, early, margins)
    found = re.search(r"from --start (\S+) on", str(refused.value.hint))
    assert found is not None
    start = parse_instant(found[1])
    require_known("priced", "prices", "lake.a.b", oldest, Window(start, start + hour), margins)


def test_the_same_app_without_lookups_reads_sources_alone() -> None:
    app = App("shop")

    @app.job
    def priced(orders: Any, prices: Any) -> Any: ...

    assert app.jobs["priced"].sources == ("orders", "prices")
    assert app.with_lookups(["prices"]).jobs["priced"].sources == ("orders",)
