"""Bulk chunks tile the window, end on the hour, and keep to their targets where they can."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.errors import PlanError
from rekappa.plan.chunks import plan_chunks
from rekappa.plan.model import Split
from rekappa.timeline import Window

T0 = datetime(2026, 11, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def split(start: timedelta, width: timedelta, rows: int) -> Split:
    return Split("s", f"{start}-{width}", rows, rows * 10, T0 + start, T0 + start + width)


minutes = st.integers(0, 600).map(lambda n: n * MINUTE)
splits_of_a_day = st.lists(st.builds(split, minutes, minutes, st.integers(0, 100)), max_size=20)


@given(splits_of_a_day, minutes, st.integers(1, 900).map(lambda n: n * MINUTE), minutes, minutes, st.integers(1, 300))
def test_outputs_tile_the_window_and_reads_cover_them(
    splits: list[Split], start: timedelta, length: timedelta, warm_up: timedelta, drain: timedelta, rows: int
) -> None:
    window = Window(T0 + start, T0 + start + length)
    chunks = plan_chunks(splits, window=window, warm_up=warm_up, drain=drain, target_rows=rows)
    assert chunks[0].output.start == window.start
    assert chunks[-1].output.end == window.end
    for before, after in pairwise(chunks):
        assert before.output.end == after.output.start
        assert before.output.end.minute == 0
        assert before.output.length >= warm_up + drain
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
    assert all(chunk.reads == chunk.output.widened(warm_up, drain) for chunk in chunks)
    again = plan_chunks(splits[::-1], window=window, warm_up=warm_up, drain=drain, target_rows=rows)
    assert chunks == again


def test_a_busy_hour_gets_a_chunk_of_its_own_and_quiet_hours_share_one() -> None:
    day = Window(T0, T0 + 24 * HOUR)
    splits = [split(hour * HOUR, 59 * MINUTE, 1000 if hour == 12 else 10) for hour in range(24)]
    chunks = plan_chunks(splits, window=day, warm_up=10 * MINUTE, drain=10 * MINUTE, target_rows=500)
    assert [chunk.output.length / HOUR for chunk in chunks] == [12, 1, 11]
    by_bytes = plan_chunks(splits, window=day, warm_up=MINUTE, drain=MINUTE, target_bytes=5000)
    assert [chunk.output.length / HOUR for chunk in by_bytes] == [12, 1, 11]


def test_an_empty_window_of_data_is_one_chunk() -> None:
    (only,) = plan_chunks([], window=Window(T0, T0 + 24 * HOUR), warm_up=HOUR, drain=HOUR)
    assert only.output == Window(T0, T0 + 24 * HOUR)
    with pytest.raises(PlanError, match="chunks of nothing"):
        plan_chunks([], window=Window(T0, T0 + HOUR), warm_up=HOUR, drain=HOUR, align=timedelta())


def test_a_window_of_a_thousand_years_costs_no_more_than_one_of_a_year() -> None:
    ages = Window(datetime(1600, 1, 1, tzinfo=UTC), datetime(2600, 1, 1, tzinfo=UTC))
    tracemalloc.start()
    chunks = plan_chunks([split(0 * HOUR, 100 * HOUR, 10**9)], window=ages, warm_up=MINUTE, drain=MINUTE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000
    assert [chunks[0].output.start, chunks[-1].output.end] == [ages.start, ages.end]
    assert all(before.output.end == after.output.start for before, after in pairwise(chunks))
    assert all(chunk.output.end.minute == 0 for chunk in chunks)
