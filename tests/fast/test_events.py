"""The generator: same seed same events, and as unruly as it says."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from rekappa.demo.events import STORIES, Traffic, in_arrival_order, take_rate
from rekappa.timeline import Window

START = datetime(2026, 11, 1, tzinfo=UTC)
THREE_HOURS = Window(START, START + timedelta(hours=3))


@pytest.mark.parametrize("story", sorted(STORIES))
def test_the_same_seed_gives_the_same_events(story: str) -> None:
    make = STORIES[story]
    first = list(make(THREE_HOURS, Traffic(per_minute=10)))
    assert first == list(make(THREE_HOURS, Traffic(per_minute=10)))
    assert first != list(make(THREE_HOURS, Traffic(per_minute=10, seed=8)))
    assert all(event.ingested >= event.event_time.replace(microsecond=0) for event in first)


def test_one_source_is_ten_times_busier_in_two_regions_with_a_burst_and_a_quiet_hour() -> None:
    events = list(take_rate(THREE_HOURS, Traffic(per_minute=100)))
    topics = Counter(event.topic for event in events)
    assert 8 < topics["impressions"] / topics["playbacks"] < 12.5
    assert {event.region for event in events} == {"us", "eu"}
    minutes = Counter((event.event_time - START) // timedelta(minutes=1) for event in events)
    assert minutes[32] > 4 * minutes[10] > 16 * minutes[120]


def test_events_arrive_out_of_order_and_some_of_them_late() -> None:
    events = in_arrival_order(take_rate(THREE_HOURS, Traffic(per_minute=100, late=0.02)))
    times = [event.event_time for event in events]
    assert times != sorted(times)
    delays = [event.ingested - event.event_time for event in events]
    late = sum(delay >= timedelta(minutes=20) for delay in delays) / len(delays)
    assert 0.01 < late < 0.03
    assert max(delay for delay in delays if delay < timedelta(minutes=15)) < timedelta(minutes=1)
