"""A seeded generator of streaming events, as unruly as real ones.

Out of order by seconds, some late by half an hour, one source ten times busier than the other, two regions,
a burst, a quiet stretch. Every event has its event time and the later time at which Kafka got it, so hours of
history can be placed at any past time and made in seconds. The same seed gives the same events.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from rekappa.timeline import Window

REGIONS = ("us", "eu")
SHOWS = 20
ACCOUNTS = 500


@dataclass(frozen=True, slots=True)
class Event:
    """One message to be sent: where, keyed by what, and both of its times."""

    topic: str
    region: str
    key: int
    event_time: datetime
    ingested: datetime
    payload: dict[str, Any]

    def value(self) -> bytes:
        return json.dumps({**self.payload, "event_ts": self.event_time.isoformat()}).encode()


@dataclass(frozen=True, slots=True)
class Traffic:
    """How unruly. `burst` and `quiet` are minutes from the start; both may lie outside the window.

    `late` is the share of events that arrive 20 to 40 minutes after they happened.
    """

    per_minute: int = 100
    late: float = 0.0
    jitter: timedelta = timedelta(seconds=3)
    burst: range = range(30, 35)
    quiet: range = range(90, 150)
    seed: int = 7

    def rate(self, minute: int) -> int:
        if minute in self.burst:
            return self.per_minute * 5
        if minute in self.quiet:
            return max(1, self.per_minute // 20)
        return self.per_minute


def _arrival(rng: random.Random, shape: Traffic, happened: datetime) -> datetime:
    if rng.random() < shape.late:
        delay = timedelta(minutes=rng.uniform(20, 40))
    else:
        delay = min(rng.expovariate(1.0), 15.0) * shape.jitter
    arrived = happened + delay
    return arrived.replace(microsecond=arrived.microsecond // 1000 * 1000)


def _moments(rng: random.Random, shape: Traffic, window: Window) -> Iterator[datetime]:
    for minute in range(int(window.length / timedelta(minutes=1))):
        for _ in range(shape.rate(minute)):
            offset = timedelta(minutes=minute, milliseconds=rng.randrange(60_000))
            yield window.start + offset


def take_rate(window: Window, shape: Traffic) -> Iterator[Event]:
    """Impressions, and for one in ten of them a playback up to twelve minutes later (ten of which count)."""
    rng = random.Random(shape.seed)
    for number, moment in enumerate(_moments(rng, shape, window)):
        account, show = rng.randrange(ACCOUNTS), rng.randrange(SHOWS)
        region = REGIONS[account % 2]
        ids = {"impression_id": number, "account_id": account, "show_id": show}
        yield Event("impressions", region, account, moment, _arrival(rng, shape, moment), ids)
        if rng.random() < 0.1:
            played = moment + timedelta(milliseconds=rng.randrange(1, 12 * 60_000))
            arrived = _arrival(rng, shape, played)
            yield Event("playbacks", region, account, played, arrived, {"playback_id": number, **ids})


def sessions(window: Window, shape: Traffic) -> Iterator[Event]:
    """Bursts of playback events per account: a start, heartbeats, a stop."""
    rng = random.Random(shape.seed)
    for moment in _moments(rng, shape, window):
        if rng.random() > 0.2:
            continue
        account, show = rng.randrange(ACCOUNTS), rng.randrange(SHOWS)
        kinds = ["start", *["heartbeat"] * rng.randrange(1, 7), "stop"]
        for kind in kinds:
            arrived = _arrival(rng, shape, moment)
            fields = {"account_id": account, "show_id": show, "kind": kind}
            yield Event("playback_events", REGIONS[account % 2], account, moment, arrived, fields)
            moment += timedelta(milliseconds=rng.randrange(1, 4 * 60_000))


STORIES: dict[str, Callable[[Window, Traffic], Iterator[Event]]] = {"take_rate": take_rate, "sessions": sessions}


def in_arrival_order(events: Iterator[Event]) -> list[Event]:
    """As Kafka would get them."""
    return sorted(events, key=lambda event: (event.ingested, event.topic, event.key))
