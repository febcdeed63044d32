"""Which micro-batches of a replay write, where no column says when a row happened."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from rekappa.replay.values import HoldBack
from rekappa.timeline import Window

START = datetime(2026, 11, 1, tzinfo=UTC)
WINDOW = Window(START + timedelta(minutes=10), START + timedelta(minutes=20))
ROWS = cast("Any", object())


@given(st.integers(0, 29), st.integers(1, 30))
def test_a_batch_writes_if_it_read_any_instant_of_the_window(first: int, length: int) -> None:
    reach = Window(START + timedelta(minutes=first), START + timedelta(minutes=first + length))
    touches = any(WINDOW.contains(START + timedelta(minutes=minute)) for minute in range(first, first + length))
    assert HoldBack(WINDOW).of(ROWS, reach) is (ROWS if touches else None)


def test_what_is_forced_out_at_the_end_is_held_back() -> None:
    assert HoldBack(WINDOW).of(ROWS, None) is None
