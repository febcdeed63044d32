"""What a live run has to read next, by the logs in its folder, written here as Spark writes them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.checkpoints.savepoints import savepoints
from rekappa.config.bind import load_app, queries
from rekappa.config.load import load
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.plan.coverage import Want
from rekappa.plan.offsets import Position
from rekappa.runs.code import code_of, record_live_start
from rekappa.runs.live import FEWEST_KEPT, MOST_KEPT, TRIGGER, kept_batches, look_after
from rekappa.runs.live_run import LiveRun, require_kafka
from rekappa.store.record import Batch, Kind, Run, State
from rekappa.store.runs import RunStore

CODE = """
from rekappa import App

app = App("shop")

@app.job
def seen(clicks):
    return clicks

@app.job
def counts(clicks):
    return clicks
"""
CONFIG = """
app: shop
sources:
  clicks:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {type: kafka, topic: clicks}
      past: {type: iceberg, table: lake.shop.clicks, follow: true}
sinks:
  seen: {type: "null"}
  counts: {type: "null"}
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "app.py").write_text(CODE)
    (folder / "rekappa.yaml").write_text(CONFIG)
    return folder


def live(shop: Path, *overrides: str) -> LiveRun:
    loaded = load(shop, overrides=overrides)
    app = load_app(loaded)
    return LiveRun(loaded, app, Home(shop.parent / ".rekappa"), "live_1", queries(loaded.config, app))


def log(run: LiveRun, query: str, number: int, ends: dict[int, int], *, committed: bool = True) -> None:
    folder = run.folder / query
    head = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1_790_000_000_000, "conf": {}})
    line = json.dumps({"clicks": {str(part): end for part, end in ends.items()}})
    (folder / "offsets" / str(number)).write(f"v1\n{head}\n{line}")
    if committed:
        (folder / "commits" / str(number)).write("v1\n{}")


def at(partition: int) -> Position:
    return Position("clicks", "local", "clicks", partition)


def test_it_goes_on_after_the_last_batch_that_was_committed(shop: Path) -> None:
    run = live(shop)
    assert run.unread() == {}, "it has not begun"
    log(run, "seen", 6, {0: 5, 1: 5})
    log(run, "seen", 7, {0: 9, 1: 5})
    assert run.unread() == {at(0): Want(at(0), 9), at(1): Want(at(1), 5)}


def test_a_batch_that_was_begun_is_part_of_it_also_where_a_partition_is_new(shop: Path) -> None:
    run = live(shop)
    log(run, "seen", 0, {0: 5})
    log(run, "seen", 1, {0: 9, 1: 2}, committed=False)
    assert run.unread() == {at(0): Want(at(0), 5, begun=9), at(1): Want(at(1), 0, begun=2)}


def test_the_query_that_is_furthest_behind_counts(shop: Path) -> None:
    run = live(shop)
    log(run, "seen", 3, {0: 5, 1: 8})
    log(run, "counts", 0, {0: 7, 1: 1})
    log(run, "counts", 1, {0: 12, 1: 1}, committed=False)
    assert run.unread() == {at(0): Want(at(0), 5, begun=12), at(1): Want(at(1), 1, begun=1)}


def test_only_topics_can_be_caught_up(shop: Path) -> None:
    require_kafka(live(shop))
    with pytest.raises(RunError, match="source 'clicks' does not read Kafka"):
        require_kafka(live(shop, "sources.clicks.selected=past"))


def test_a_run_whose_checkpoint_is_not_there_is_not_begun_anew(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when REKAPPA_STORAGE names another place than where the run was: it would write everything again."""
    run, order = live(shop), (("clicks", "local", "clicks"),)
    store = RunStore.open(run.home)
    store.create(Run("live_1", "shop", Kind.LIVE, str(shop)))

    def begin() -> None:
        with store.claim(["app shop"], "live") as claim:
            claim.begin("live_1")
            here = live(shop).folder / "seen"
            record_live_start(store, run.loaded, code_of(run.home, run.loaded), claim, "seen", here, order)
            claim.end(State.STOPPED)

    begin()
    for number in range(2):
        log(run, "seen", number, {0: 5 + number})
    begin()
    assert [one.batch for one in store.starts("live_1")] == [0, 2]
    monkeypatch.setenv("REKAPPA_STORAGE", str(shop.parent / "elsewhere"))
    with pytest.raises(RunError, match="does not have its checkpoint, of which the run store knows batch 1") as refused:
        begin()
    assert "REKAPPA_STORAGE" in str(refused.value.hint)
    monkeypatch.delenv("REKAPPA_STORAGE")
    begin()


def test_a_live_run_keeps_points_and_forgets_what_is_older_than_it_is_remembered(shop: Path) -> None:
    run, now = live(shop), datetime.now(UTC)
    store = RunStore.open(run.home)
    record = store.create(Run("live_1", "shop", Kind.LIVE, str(shop)))
    ages = {number: timedelta(days=100 - number) for number in range(50)}
    store.record_batches([Batch("live_1", "seen", number, (), None, now - age) for number, age in ages.items()])
    for number in (48, 49):
        log(run, "seen", number, {0: number})
    said: list[str] = []
    look_after(run.home, store, record, ["seen"], timedelta(days=90), said.append)
    assert [one.name[:5] for one in savepoints(run.home, "shop")] == ["auto-"]
    assert sorted(one.number for one in store.batches("live_1", "seen")) == list(range(10, 50))
    look_after(run.home, store, record, ["seen", "not begun"], timedelta(days=90), said.append)
    assert said == [], "nothing is due yet"


@given(st.timedeltas(timedelta(0), timedelta(days=2)))
def test_batches_are_kept_for_an_hour_in_reason(trigger: timedelta) -> None:
    kept = kept_batches(trigger)
    assert FEWEST_KEPT <= kept <= MOST_KEPT
    if trigger:
        assert kept * trigger >= timedelta(hours=1) or kept == MOST_KEPT


def test_at_the_usual_pace_an_hour_is_kept() -> None:
    assert kept_batches(TRIGGER) * TRIGGER == timedelta(hours=1)
