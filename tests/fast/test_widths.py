"""The width of production's micro-batches, and slices that are as wide where the job allows it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rekappa.config.bind import Query
from rekappa.config.load import load
from rekappa.home import Home
from rekappa.plan.finality import Finality
from rekappa.plan.model import OffsetBounds, Split
from rekappa.plan.widths import widest_batch
from rekappa.planning.widths import chosen_span, production_width
from rekappa.store.code import Code
from rekappa.store.record import Batch, Kind, Run, Standing, Start
from rekappa.store.runs import RunStore
from rekappa.timeline import Window

T0 = datetime(2026, 11, 1, tzinfo=UTC)
UNSEEN = datetime(1970, 1, 1, tzinfo=UTC)
M = timedelta(minutes=1)
DELAY = 5 * M
CONFIG = """\
app: plays
sources:
  s: {schema: event_ts TIMESTAMP, event_time: event_ts, candidates: {live: {type: kafka, topic: t}}}
sinks:
  out: {type: iceberg, table: lake.a.out}
"""
sizes = st.lists(st.integers(0, 60), min_size=1, max_size=12)


@given(sizes, st.integers(-100, 400), st.integers(1, 300))
def test_no_micro_batch_around_what_is_read_was_wider(lengths: list[int], start: int, length: int) -> None:
    """Events come one a minute and on time; batch n takes `lengths[n]` of them."""
    ends = [T0 + sum(lengths[: n + 1]) * M for n in range(len(lengths))]
    marks = [UNSEEN, *(end - DELAY for end in ends[:-1])]
    reads = Window(T0 + start * M, T0 + (start + length) * M)
    found = widest_batch(marks, reads, DELAY, T0, ends[-1])
    for began, end in zip([T0, *ends], ends, strict=False):
        inside = min(end, reads.end) - max(began, reads.start)
        assert inside <= found or end <= reads.start or began >= reads.end
    assert found <= max(lengths) * M


def test_without_a_watermark_nothing_is_dropped_so_no_width_matters() -> None:
    assert widest_batch([None, None], Window(T0, T0 + M), DELAY, T0, T0) == timedelta()


def test_slices_are_as_wide_as_production_unless_order_or_the_user_says_otherwise() -> None:
    assert chosen_span(None, 15 * M, 40 * M, in_order=False) == (40 * M, [])
    assert chosen_span(None, 60 * M, 40 * M, in_order=True) == (60 * M, [])
    span, (said,) = chosen_span(None, 15 * M, 40 * M, in_order=True)
    assert span == 15 * M
    assert "spanned up to 40m, slices span 15m" in said
    assert "--slice-span" not in said
    span, (said,) = chosen_span(10 * M, 15 * M, 40 * M, in_order=False)
    assert span == 10 * M
    assert "--slice-span '40m'" in said


def test_recorded_batches_are_found_in_the_store(tmp_path: Path) -> None:
    home = Home(tmp_path)
    store = RunStore.open(home)
    (tmp_path / "rekappa.yaml").write_text(CONFIG)
    loaded = load(tmp_path, environ={})
    store.create(Run("live_1", "plays", Kind.LIVE, "."))
    store.record_start(Start("live_1", "out", 0, Code("abc"), "lake.a.out"))
    marks = [None, UNSEEN, T0 + 15 * M, T0 + 25 * M]
    store.record_batches(
        Batch("live_1", "out", n - 1, (Standing("s", "eu", "t", {0: 10 * n}),), mark, T0)
        for n, mark in enumerate(marks)
    )

    def split(first: int, low: int, high: int) -> Split:
        bounds = OffsetBounds(0, 0, first, first + 9)
        return Split("s", f"f{first}", 10, 100, T0 + low * M, T0 + high * M, "eu", positions=bounds)

    splits = [split(0, 0, 20), split(10, 20, 30), split(20, 30, 75)]
    query = Query("out", "out", "out", "out")
    reads = Window(T0 - 60 * M, T0 + 120 * M)
    finality = Finality(reads.end, delay=DELAY)
    assert production_width(home, loaded, None, [query], splits, reads, finality) == 45 * M
    assert production_width(home, loaded, "live_1", [query], splits[:2], reads, finality) == 20 * M
    moved = load(tmp_path, overrides=["sinks.out.table=lake.a.elsewhere"], environ={})
    assert production_width(home, moved, None, [query], splits, reads, finality) == timedelta()
    assert production_width(home, loaded, None, [query], splits, reads, None) == timedelta()
