"""What a live run has to read next, by the logs in its folder, written here as Spark writes them."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.config.bind import load_app, queries
from rekappa.config.load import load
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.plan.coverage import Want
from rekappa.plan.offsets import Position
from rekappa.runs.live import FEWEST_KEPT, MOST_KEPT, TRIGGER, kept_batches
from rekappa.runs.live_run import LiveRun, require_kafka

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


@given(st.timedeltas(timedelta(0), timedelta(days=2)))
def test_batches_are_kept_for_an_hour_in_reason(trigger: timedelta) -> None:
    kept = kept_batches(trigger)
    assert FEWEST_KEPT <= kept <= MOST_KEPT
    if trigger:
        assert kept * trigger >= timedelta(hours=1) or kept == MOST_KEPT


def test_at_the_usual_pace_an_hour_is_kept() -> None:
    assert kept_batches(TRIGGER) * TRIGGER == timedelta(hours=1)
