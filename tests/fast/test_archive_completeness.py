"""Up to when a region is complete, and what retention costs: the arithmetic."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.archive.completeness import Ends, properties, reached
from rekappa.archive.cost import price

START = datetime(2026, 11, 1, tzinfo=UTC)


def test_a_partition_is_complete_up_to_the_newest_end_that_was_reached() -> None:
    seen = [
        Ends(START, {("us", 0): 10, ("us", 1): 5}),
        Ends(START + timedelta(minutes=1), {("us", 0): 20, ("us", 1): 5}),
    ]
    assert reached({("us", 0): 15, ("us", 1): 5}, seen) == {
        ("us", 0): START,
        ("us", 1): START + timedelta(minutes=1),
    }
    assert reached({("us", 0): 9}, seen) == {}


def test_an_empty_partition_is_complete() -> None:
    assert reached({}, [Ends(START, {("us", 0): 0})]) == {("us", 0): START}


@given(st.lists(st.integers(0, 100), min_size=1), st.integers(0, 100), st.integers(0, 100))
def test_reading_more_never_makes_it_less_complete(ends: list[int], low: int, more: int) -> None:
    seen = [Ends(START + timedelta(minutes=n), {("us", 0): end}) for n, end in enumerate(sorted(ends))]
    before, after = reached({("us", 0): low}, seen), reached({("us", 0): low + more}, seen)
    assert all(after[part] >= moment for part, moment in before.items())


def test_what_a_commit_says() -> None:
    assert properties({"us": START}) == {"rekappa.complete-until.us": "2026-11-01T00:00:00+00:00"}


def test_price_counts_replicas() -> None:
    assert price(2e9, 10, 0.1, 3) == pytest.approx(6.0)
    assert price(2e9, 0, 0.1, 3) == 0
