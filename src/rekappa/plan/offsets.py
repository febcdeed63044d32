"""Slices by Kafka offset, in the exact order of every partition (`rekappa.plan.recorded` has those of production).

They say of each slice which offsets [start, end) of which partition it reads. The ranges of a partition follow
each other without gap or overlap, so its records come in the order of Kafka, each once. Splits are attached to
every slice that could need them; the reader takes from them only the rows whose offsets the slice names.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate
from typing import NamedTuple

from rekappa.plan.cut import clip
from rekappa.plan.lookup import Files, Wanted
from rekappa.plan.model import OffsetRange, Slice, SourceSlice, Split
from rekappa.timeline import TICK, Window


class Position(NamedTuple):
    """One Kafka partition of one source, or of one reader of it. The same topic in two regions is two positions."""

    source: str
    region: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class CutPoint:
    """What the archive holds of one partition in one stretch of ingestion time: its offsets and how many rows.

    `first` and `last` are inclusive and are those of the rows in `bucket`: with producers' timestamps, rows of
    other buckets may lie between them.
    """

    position: Position
    bucket: Window
    first: int
    last: int
    rows: int


def strict_slices(
    points: Iterable[CutPoint],
    splits: Iterable[Split],
    *,
    reads: Window,
    max_rows: int,
    max_span: timedelta,
    regions: Collection[str] = (),
) -> tuple[Slice, ...]:
    """Slices that advance in time over all partitions together, and by offset within each one.

    `points` are those of the rows in `reads`. Where time and offset disagree, offset wins: a record stands with
    the first slice that reads up to or beyond its offset. A slice takes whole buckets, at least one of them,
    up to `max_rows` and `max_span`. `regions`, if any are named, leaves out the partitions of the others.
    """
    wanted: dict[datetime, list[Wanted]] = {}
    rows: dict[datetime, int] = {}
    for position, own in _by_position(points, regions):
        times = OffsetTimes(own)
        reached = min(point.first for point in own)
        for point in own:
            rows[point.bucket.start] = rows.get(point.bucket.start, 0) + point.rows
            if point.last >= reached:
                stretch = times.of(reached, point.last)
                assert stretch is not None, "the point itself is in it"
                offsets = OffsetRange(position.region, position.topic, position.partition, reached, point.last + 1)
                wanted.setdefault(point.bucket.start, []).append(Wanted(position.source, offsets, *stretch))
                reached = point.last + 1

    files = Files([part for split in splits if (part := clip(split, reads)) is not None])
    slices: list[Slice] = []
    batch: list[Wanted] = []
    batch_rows, since = 0, reads.start
    for bucket in sorted(rows):
        if batch and (batch_rows + rows[bucket] > max_rows or bucket - since >= max_span):
            slices.append(slice_of(len(slices), _joined(batch), files))
            batch, batch_rows = [], 0
        if not batch:
            since, batch_rows = bucket, 0
        batch += wanted.get(bucket, ())
        batch_rows += rows[bucket]
    if batch:
        slices.append(slice_of(len(slices), _joined(batch), files))
    return tuple(slices)


def _by_position(points: Iterable[CutPoint], regions: Collection[str]) -> Iterator[tuple[Position, list[CutPoint]]]:
    """Each partition's points in the order of time."""
    groups: dict[Position, list[CutPoint]] = {}
    for point in points:
        if not regions or point.position.region in regions:
            groups.setdefault(point.position, []).append(point)
    for position in sorted(groups):
        yield position, sorted(groups[position], key=lambda point: (point.bucket, point.last))


class OffsetTimes:
    """Answers in which stretch of time the rows of some offsets of one partition lie, also those out of order."""

    def __init__(self, own: Iterable[CutPoint]) -> None:
        self._own = own = sorted(own, key=lambda point: (point.bucket, point.last))
        # Both only grow with time: the highest offset so far, the lowest one still to come.
        self._highest = list(accumulate((point.last for point in own), max))
        self._lowest = list(accumulate((point.first for point in reversed(own)), min))[::-1]

    def of(self, first: int, last: int) -> tuple[datetime, datetime] | None:
        """The closed stretch for offsets `first` to `last`, both inclusive; None where no row can be one of them."""
        earliest = bisect_left(self._highest, first)
        latest = bisect_right(self._lowest, last) - 1
        if earliest > latest:
            return None
        return self._own[earliest].bucket.start, self._own[latest].bucket.end - TICK


def _joined(batch: list[Wanted]) -> list[Wanted]:
    """One range for the ranges of a partition that follow each other in one slice."""
    joined: dict[Position, Wanted] = {}
    for one in batch:
        position = Position(one.source, one.offsets.region, one.offsets.topic, one.offsets.partition)
        before = joined.get(position)
        if before is None:
            joined[position] = one
        else:
            low, high = min(before.low, one.low), max(before.high, one.high)
            joined[position] = Wanted(one.source, replace(before.offsets, end=one.offsets.end), low, high)
    return [joined[position] for position in sorted(joined)]


def slice_of(number: int, wanted: list[Wanted], files: Files) -> Slice:
    """The slice that reads these offsets, with every split that may hold some of them."""
    sources: dict[str, SourceSlice] = {}
    lows: list[datetime] = []
    highs: list[datetime] = []
    for source in sorted({one.source for one in wanted}):
        own = [one for one in wanted if one.source == source]
        found: dict[int, Split] = {}
        for one in own:
            for split in files.that_may_hold(one):
                found[id(split)] = split
                lows.append(max(split.low, one.low))
                highs.append(min(split.high, one.high))
        splits = sorted(found.values(), key=lambda split: (split.low, split.path))
        planned = tuple(replace(split, groups=(), positions=None) for split in splits)
        sources[source] = SourceSlice(planned, tuple(one.offsets for one in own))
    return Slice(number, sources, Window(min(lows), max(highs) + TICK) if lows else None)
