"""Sinks with candidates: one mechanism with the plain form, and what is production."""

from __future__ import annotations

from pathlib import Path

import pytest

from rekappa.config import explain
from rekappa.config.bind import Query, live_queries, load_app
from rekappa.config.load import Loaded, load, require_production
from rekappa.config.model import IcebergSink, NullSink
from rekappa.errors import ConfigError, RunError
from rekappa.home import Home
from rekappa.planning.production import production_runs
from rekappa.runs.live import choose_run
from rekappa.store.code import Code
from rekappa.store.record import Run, Start, State
from rekappa.store.runs import RunStore

HEAD = """\
app: shop
owner: team-shop@example.org
sources:
  clicks:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {type: kafka, topic: clicks}
      backfill: {type: iceberg, table: lake.events.clicks}
sinks:
"""
PLAIN = "  totals: {type: iceberg, table: lake.shop.totals, mode: upsert, key: [id], event_time: event_ts}\n"
SWITCHED = """\
  totals:
    key: [id]
    event_time: event_ts
    output_mode: update
    candidates:
      production: {type: iceberg, table: lake.shop.totals, mode: upsert}
      test: {type: iceberg, table: lake.shop.totals_test, mode: upsert, event_time: tested_ts}
      nowhere: {type: null}
"""
TO_TEST = "sinks.totals.selected=test"


def written(folder: Path, sinks: str) -> Path:
    (folder / "rekappa.yaml").write_text(HEAD + sinks)
    return folder


def refused(folder: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, overrides=overrides, environ={})
    return f"{caught.value.message} {caught.value.hint}"


def test_the_selected_candidate_is_the_sink_and_takes_what_stands_beside_the_candidates(tmp_path: Path) -> None:
    folder = written(tmp_path, SWITCHED)
    sink = load(folder, environ={}).config.sinks["totals"]
    assert isinstance(sink, IcebergSink)
    assert (sink.table, sink.key, sink.event_time) == ("lake.shop.totals", ("id",), "event_ts")
    tested = load(folder, environ={"REKAPPA__SINKS__TOTALS__SELECTED": "test"})
    assert tested.config.sinks["totals"].event_time == "tested_ts"
    nowhere = load(folder, overrides=["sinks.totals.selected=nowhere"], environ={}).config.sinks["totals"]
    assert isinstance(nowhere, NullSink)
    assert nowhere.upserts, "an update of rows that nobody keeps contradicts nothing"
    assert load(folder, overrides=["sinks.totals.key=[a, b]"], environ={}).config.sinks["totals"].key == ("a", "b")


def test_every_value_is_explained_with_the_key_that_sets_it(tmp_path: Path) -> None:
    switched = {one.key: one for one in explain.settings(load(written(tmp_path, SWITCHED), environ={}))}
    assert str(switched["sinks.totals.candidates.production.event_time"].origin).endswith("rekappa.yaml:13")
    assert switched["sinks.totals.candidates.test.event_time"].value == "tested_ts"
    assert switched["sinks.totals.selected"].value == "production"
    plain = {one.key: one for one in explain.settings(load(written(tmp_path, PLAIN), environ={}))}
    assert plain["sinks.totals.table"].value == "lake.shop.totals"
    assert not any("candidates" in key for key in plain if key.startswith("sinks."))


def test_every_candidate_is_checked_whichever_is_selected(tmp_path: Path) -> None:
    wrong = written(tmp_path, SWITCHED.replace("lake.shop.totals_test", "pond.shop.totals"))
    assert "sinks.totals.candidates.test.table names the unknown catalog 'pond'" in refused(wrong)
    misspelt = written(tmp_path, SWITCHED.replace("nowhere: {type: null}", "nowhere: {type: nul}"))
    assert "sinks.totals.candidates.nowhere has the unknown type 'nul'" in refused(misspelt)
    beside = written(tmp_path, SWITCHED + "    table: lake.shop.all\n")
    assert "sinks.totals.table is not a known key" in refused(beside)
    assert "Did you mean 'test'?" in refused(written(tmp_path, SWITCHED), "sinks.totals.selected=tset")
    assert "no candidate 'other'" in refused(written(tmp_path, SWITCHED), "sinks.totals.candidates.other.table=a.b.c")
    assert "written without candidates" in refused(written(tmp_path, PLAIN), TO_TEST)
    assert "sinks.totals.tabel is not a known key Did you mean 'table'?" in refused(
        written(tmp_path, PLAIN.replace("table:", "tabel:"))
    )


def test_what_the_file_selects_is_production_and_nothing_else(tmp_path: Path) -> None:
    folder = written(tmp_path, SWITCHED)
    for here in (load(folder, environ={}), load(folder, overrides=["sinks.totals.selected=production"], environ={})):
        assert here.elsewhere == {}
        require_production(here, "publish")
    for there in (
        load(folder, overrides=[TO_TEST], environ={}),
        load(folder, environ={"REKAPPA__SINKS__TOTALS__SELECTED": "test"}),
    ):
        assert there.elsewhere == {"totals": "test"}
        with pytest.raises(ConfigError, match=r"Cannot publish with .*always means the sink that"):
            require_production(there, "publish")
    moved = written(tmp_path, SWITCHED.replace("    candidates:", "    selected: test\n    candidates:"))
    assert load(moved, environ={}).elsewhere == {}


def ran(store: RunStore, loaded: Loaded, target: str) -> Run:
    """A live run as `rekappa run` records it, stopped."""
    query = Query("totals", "totals", "totals", "totals")
    run = choose_run(store, loaded, [query], {}, fresh=False, append_again=False)
    store.record_start(Start(run.id, "totals", 0, Code("abc"), target))
    return store.update(run.id, state=State.STOPPED)


def test_a_run_that_writes_elsewhere_is_a_run_of_its_own_and_never_production(tmp_path: Path) -> None:
    folder, store = written(tmp_path, SWITCHED), RunStore.open(Home(tmp_path / "home"))
    here, there = load(folder, environ={}), load(folder, overrides=[TO_TEST], environ={})
    production = ran(store, here, "lake.shop.totals")
    tried = ran(store, there, "lake.shop.totals_test")
    assert production.id != tried.id
    assert tried.spec["elsewhere"] == {"totals": "test"}
    assert production.owner == tried.owner == "team-shop@example.org"
    assert [run.id for run in production_runs(store, here, "totals")] == [production.id]
    assert ran(store, there, "lake.shop.totals_test").id == tried.id, "it goes on where it was"
    assert ran(store, here, "lake.shop.totals").id == production.id
    with pytest.raises(RunError, match=f"Cannot take run {tried.id} for production: it wrote sink 'totals' to"):
        production_runs(store, here, "totals", tried.id)


def test_a_run_that_writes_elsewhere_leaves_production_s_other_sinks_alone(tmp_path: Path) -> None:
    """It begins at the beginning: in a sink that upserts it would write over all that production has."""
    folder = written(tmp_path, SWITCHED + PLAIN.replace("totals", "fares"))
    (folder / "app.py").write_text(
        'from rekappa import App\napp = App("shop")\n'
        "@app.job(sinks=['totals', 'fares'])\ndef both(clicks):\n    return {'totals': clicks, 'fares': clicks}\n"
    )
    for overrides, sinks in (((), ["totals", "fares"]), ((TO_TEST,), ["totals"])):
        loaded = load(folder, overrides=overrides, environ={})
        assert [query.sink for query in live_queries(loaded, load_app(loaded))] == sinks
