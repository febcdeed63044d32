"""What each job of the fidelity suite must give, worked out in plain Python from the archived events.

`kept(event, end)` says whether production took an event in, given the time at which what it belongs to closes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from typing import Any

from fidelity_history import MINUTE, Production, Row

from rekappa.timeline import Window

GAP = 5 * MINUTE
EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True)
class Seen:
    """An archived event, and where production's watermark for late events stood when it read it."""

    fields: Any
    at: datetime
    watermark: datetime | None


Kept = Callable[[Seen, datetime], bool]


def everything(event: Seen, end: datetime) -> bool:
    return True


def in_time(event: Seen, end: datetime) -> bool:
    return event.watermark is None or end > event.watermark


def seen(production: Production, job: str, source: str, reader: int = 0) -> list[Seen]:
    """Spark drops by the watermark of the micro-batch before the one that reads the event."""
    ranges: dict[tuple[str, int], list[tuple[int, datetime | None]]] = defaultdict(list)
    for before, batch in pairwise(production.batches(job)):
        reached = {one.topic: one.ends for one in before.positions if (one.source, one.reader) == (source, reader)}
        for one in batch.positions:
            if (one.source, one.reader) == (source, reader):
                for partition, end in one.ends.items():
                    start = reached.get(one.topic, {}).get(partition, 0)
                    if start < end:
                        late = _local(before.watermark) if before.watermark else None
                        ranges[one.topic, partition].append((start, late))
    events = []
    for row in production.archived(source):
        place = row["__metadata__"]
        known = ranges[place.topic, place.partition]
        at = bisect_right(known, place.offset, key=lambda one: one[0]) - 1
        events.append(Seen(row, row.event_ts, known[at][1] if at >= 0 else None))
    return events


def expected(production: Production, job: str, kept: Kept, window: Window) -> Counter[Row]:
    """The job's rows of the window."""
    if job == "sessions":
        rows = _sessions(seen(production, job, "playback_events"), kept)
    else:
        shown = seen(production, job, "impressions")
        if job in TWICE:
            played = seen(production, job, "impressions", reader=1)
        else:
            played = seen(production, job, "playbacks") if job in JOINS else []
        rows = MAKERS[job](shown, played, kept)
    start, end = _local(window.start), _local(window.end)
    return Counter(row for row in rows if start <= row[TIMES.get(job, 2)] < end)


Rows = Iterator[Row]


def _local(moment: datetime) -> datetime:
    """As Spark hands instants to Python."""
    return moment.astimezone().replace(tzinfo=None)


def floor(moment: datetime, step: timedelta) -> datetime:
    return moment - (moment - EPOCH) % step


def _plain(shown: list[Seen], played: list[Seen], kept: Kept) -> Rows:
    for one in shown:
        if one.fields.show_id % 3:
            yield one.fields.impression_id, one.fields.show_id * 10, one.at


def _windows(events: Sequence[Seen], length: timedelta, step: timedelta, kept: Kept) -> Iterator[tuple[datetime, Seen]]:
    for one in events:
        start = floor(one.at, step)
        while start + length > one.at:
            if kept(one, start + length):
                yield start, one
            start -= step


def _tumbling(shown: list[Seen], played: list[Seen], kept: Kept) -> Rows:
    found: dict[Row, list[int]] = defaultdict(list)
    for start, one in _windows(shown, 10 * MINUTE, 10 * MINUTE, kept):
        found[start, one.fields.show_id].append(one.fields.account_id)
    return ((*key, len(accounts), sum(accounts)) for key, accounts in found.items())


def _sliding(shown: list[Seen], played: list[Seen], kept: Kept) -> Rows:
    found = Counter((start, one.fields.show_id) for start, one in _windows(shown, 10 * MINUTE, 5 * MINUTE, kept))
    return ((*key, count) for key, count in found.items())


def _chained(shown: list[Seen], played: list[Seen], kept: Kept) -> Rows:
    fives = Counter((start, one.fields.show_id) for start, one in _windows(shown, 5 * MINUTE, 5 * MINUTE, kept))
    quarters: dict[datetime, list[int]] = defaultdict(list)
    for (start, _), count in fives.items():
        quarters[floor(start, 15 * MINUTE)].append(count)
    return ((start, sum(counts), max(counts)) for start, counts in quarters.items())


def _runs(moments: Sequence[datetime], gap: timedelta) -> Iterator[list[datetime]]:
    """Moments that follow each other within the gap."""
    run: list[datetime] = []
    for moment in sorted(moments):
        if run and moment - run[-1] > gap:
            yield run
            run = []
        run.append(moment)
    if run:
        yield run


def _session_windows(shown: list[Seen], played: list[Seen], kept: Kept) -> Rows:
    gap = 2 * MINUTE
    teams = _by(shown, "account_id", lambda account: account % 40, lambda one: kept(one, one.at + gap))
    for team, moments in teams.items():
        for run in _runs(moments, gap):
            yield run[0], run[-1] + gap, team, len(run)


def _sessions(events: list[Seen], kept: Kept) -> Rows:
    accounts = _by(events, "account_id", lambda account: account, lambda one: kept(one, one.at))
    for account, moments in accounts.items():
        for run in _runs(moments, GAP):
            yield account, run[0], run[-1], len(run)


def _by(
    events: Sequence[Seen], column: str, key: Callable[[int], int], taken: Callable[[Seen], bool]
) -> dict[int, list[datetime]]:
    pairs = sorted((key(one.fields[column]), one.at) for one in events if taken(one))
    return {name: [at for _, at in group] for name, group in groupby(pairs, key=lambda pair: pair[0])}


def _distinct(shown: list[Seen], played: list[Seen], kept: Kept) -> Rows:
    return iter({(one.fields.impression_id, one.fields.show_id, one.at) for one in shown if kept(one, one.at)})


def _pairs(left: list[Seen], right: list[Seen], kept: Kept, low: float, high: float) -> Iterator[tuple[Seen, Seen]]:
    """Both sides of one impression whose times are `low` to `high` minutes apart."""
    by_id: dict[int, list[Seen]] = defaultdict(list)
    for other in right:
        if kept(other, other.at):
            by_id[other.fields.impression_id].append(other)
    for one in left:
        for other in by_id[one.fields.impression_id] if kept(one, one.at) else ():
            if low * MINUTE <= other.at - one.at <= high * MINUTE:
                yield one, other


def _inner_join(shown: list[Seen], played: list[Seen], kept: Kept) -> Rows:
    for one, play in _pairs(shown, played, kept, 0, 8):
        yield one.fields.impression_id, play.fields.playback_id, one.at, play.at


def _left_join(shown: list[Seen], played: list[Seen], kept: Kept) -> Rows:
    found = defaultdict(list)
    for play, one in _pairs(played, shown, kept, -4, 0):
        found[id(play)].append(one.at)
    for play in played:
        for at in found.get(id(play), [None]) if kept(play, play.at) else ():
            yield play.fields.playback_id, play.at, at


def _self_join(shown: list[Seen], again: list[Seen], kept: Kept) -> Rows:
    by_show: dict[int, list[Seen]] = defaultdict(list)
    for other in again:
        if kept(other, other.at):
            by_show[other.fields.show_id].append(other)
    for one in shown:
        for other in by_show[one.fields.show_id] if kept(one, one.at) else ():
            if timedelta() < other.at - one.at <= timedelta(seconds=20):
                yield one.fields.impression_id, other.fields.impression_id, one.at


def _windowed_join(shown: list[Seen], played: list[Seen], kept: Kept) -> Rows:
    counts = [
        Counter((start, one.fields.show_id) for start, one in _windows(events, 10 * MINUTE, 10 * MINUTE, kept))
        for events in (shown, played)
    ]
    return ((*key, counts[0][key], counts[1][key]) for key in counts[0].keys() & counts[1].keys())


def _both_halves(shown: list[Seen], again: list[Seen], kept: Kept) -> Rows:
    halves = [one for one in shown if one.fields.show_id % 2 == 0]
    halves += [one for one in again if one.fields.account_id % 2 == 0]
    found = Counter((start, one.fields.show_id) for start, one in _windows(halves, 10 * MINUTE, 10 * MINUTE, kept))
    return ((*key, count) for key, count in found.items())


def _plays(shown: list[Seen], played: list[Seen], kept: Kept) -> Rows:
    found = defaultdict(list)
    for one, play in _pairs(shown, played, kept, 0, 10):
        if play.at < one.at + 10 * MINUTE:
            found[id(one)].append((play.fields.playback_id, play.at))
    for one in shown:
        for play_id, at in found.get(id(one), [(None, None)]) if kept(one, one.at) else ():
            yield one.fields.impression_id, one.fields.account_id, one.fields.show_id, one.at, play_id, at


def _take_rate(shown: list[Seen], played: list[Seen], kept: Kept) -> Rows:
    found: dict[Row, list[bool]] = defaultdict(list)
    for _, _, show, at, play, _ in _plays(shown, played, kept):
        found[floor(at, 10 * MINUTE), show].append(play is not None)
    for key, plays in found.items():
        yield (*key, len(plays), sum(plays), sum(plays) / len(plays))


JOINS = ("inner_join", "left_join", "windowed_join", "plays_per_impression", "take_rate")
TWICE = ("self_join", "both_halves")
"""Jobs that read one source through two readers."""
MAKERS: dict[str, Callable[[list[Seen], list[Seen], Kept], Rows]] = {
    "plain": _plain,
    "tumbling": _tumbling,
    "sliding": _sliding,
    "session_windows": _session_windows,
    "inner_join": _inner_join,
    "left_join": _left_join,
    "distinct_rows": _distinct,
    "distinct_keys": _distinct,
    "distinct_within": _distinct,
    "chained": _chained,
    "self_join": _self_join,
    "windowed_join": _windowed_join,
    "both_halves": _both_halves,
    "plays_per_impression": _plays,
    "take_rate": _take_rate,
}
TIMES = {"sessions": 1, "tumbling": 0, "sliding": 0, "session_windows": 0, "left_join": 1, "chained": 0,
         "windowed_join": 0, "both_halves": 0, "plays_per_impression": 3, "take_rate": 0}  # fmt: skip
"""Where the sink's event time stands in a row; third, if not named here."""
KEYS = {"tumbling": (0, 1), "sliding": (0, 1), "take_rate": (0, 1), "session_windows": (2,), "windowed_join": (0, 1),
        "both_halves": (0, 1)}  # fmt: skip
"""What tells rows apart; the first column, if not named here. Sessions may merge, so they are told apart by owner."""
WEIGHTS = {
    "windowed_join": 3,
    "both_halves": 2,
    "tumbling": 2,
    "sliding": 2,
    "session_windows": 3,
    "chained": 1,
    "take_rate": 2,
    "sessions": 3,
}
"""The column that counts the inputs behind a row; a row counts as one where there is none."""


def key(job: str, row: Row) -> Row:
    return tuple(row[at] for at in KEYS.get(job, (0,)))


def weight(job: str, rows: Counter[Row]) -> int:
    at = WEIGHTS.get(job)
    return sum(count * (1 if at is None else row[at]) for row, count in rows.items())
