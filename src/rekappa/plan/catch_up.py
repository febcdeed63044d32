"""Catching up from the archive: how far each micro-batch goes, in Kafka's own offsets.

    ends = aligned_ends(points, starts, hand_over, max_rows=…, max_span=…)
    cursor = Cursor(ends, reached)
    cursor.next(reader, position)      asked by each reader of the query, once for every micro-batch

A micro-batch is told by where it ends in every partition. The ends of all sources advance together in ingestion time,
as slices do; the last one is the hand-over, exactly. Every batch moves some partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from rekappa.plan.lookup import Files, Wanted
from rekappa.plan.model import NOTHING, OffsetRange, SourceSlice, Split
from rekappa.plan.offsets import CutPoint, OffsetTimes, Position, strict_slices
from rekappa.timeline import EPOCH, Window

ALWAYS = Window(EPOCH, datetime(9000, 1, 1, tzinfo=UTC))

EndOffsets = Mapping[Position, int]
"""For each partition the offset up to which is read, exclusive."""


def aligned_ends(
    points: Iterable[CutPoint], starts: EndOffsets, until: EndOffsets, *, max_rows: int, max_span: timedelta
) -> tuple[EndOffsets, ...]:
    """The ends of the micro-batches that read every partition from `starts` up to `until`; none if that is nothing.

    Both name the same partitions. `points` say when the archive's offsets were ingested; those outside are ignored.
    """
    inside = [cut for point in points if (cut := _clipped(point, starts, until)) is not None]
    slices = strict_slices(inside, (), reads=ALWAYS, max_rows=max_rows, max_span=max_span)
    reached = dict(starts)
    found: list[EndOffsets] = []
    for one in slices:
        for source, part in one.sources.items():
            for read in part.offsets:
                reached[Position(source, read.region, read.topic, read.partition)] = read.end
        found.append(dict(reached))
    # What follows the last event holds none: dead letters, markers of transactions. It is passed over with that event.
    if found:
        found[-1] = dict(until)
    elif any(until[position] > start for position, start in starts.items()):
        found.append(dict(until))
    return tuple(found)


def _clipped(point: CutPoint, starts: EndOffsets, until: EndOffsets) -> CutPoint | None:
    start, end = starts.get(point.position, 0), until.get(point.position, 0)
    first, last = max(point.first, start), min(point.last, end - 1)
    return replace(point, first=first, last=last) if first <= last else None


class Cursor:
    """Keeps the readers of one query in step. Spark asks every reader once for each micro-batch, always in the same
    order; a query that joins a source with itself has several readers of it, each where it stands.

    `reached` is where each reader stands by the newest batch in the log of offsets, committed or not.
    """

    def __init__(self, ends: Sequence[EndOffsets], reached: Sequence[EndOffsets]) -> None:
        self._ends = ends
        self._reached = [dict(one) for one in reached]
        self._asked: set[int] = set()
        self._now: EndOffsets = {}

    @property
    def done(self) -> bool:
        return self._next() is None

    def next(self, reader: int) -> EndOffsets:
        """Where the next micro-batch ends for this reader: where it stands, if the batch has nothing for it."""
        if reader in self._asked or len(self._asked) == len(self._reached):
            self._asked.clear()
        if not self._asked:
            self._now = self._next() or {}
        self._asked.add(reader)
        own = self._reached[reader]
        for position in own:
            own[position] = max(own[position], self._now.get(position, 0))
        return dict(own)

    def after(self, reader: int) -> EndOffsets:
        """Where the batch after the one at hand will end for this reader, once all readers have been asked for that."""
        own, ends = self._reached[reader], self._next() or {}
        return {position: max(at, ends.get(position, 0)) for position, at in own.items()}

    def _next(self) -> EndOffsets | None:
        return next((ends for ends in self._ends if any(_beyond(ends, one) for one in self._reached)), None)


def _beyond(ends: EndOffsets, reached: EndOffsets) -> bool:
    return any(ends.get(position, 0) > at for position, at in reached.items())


class Holdings:
    """The archive's files by offset: which of them a micro-batch has to open."""

    def __init__(self, points: Iterable[CutPoint], splits: Iterable[Split]) -> None:
        own: dict[Position, list[CutPoint]] = {}
        for point in points:
            own.setdefault(point.position, []).append(point)
        self._times = {position: OffsetTimes(found) for position, found in own.items()}
        self._files = Files(list(splits))

    def slice_of(self, starts: EndOffsets, ends: EndOffsets) -> SourceSlice:
        """What to read for the offsets between them: nothing, where no partition moves or none of it is an event."""
        offsets: list[OffsetRange] = []
        found: dict[int, Split] = {}
        for position, end in sorted(ends.items()):
            start, times = starts.get(position, 0), self._times.get(position)
            if start >= end or times is None:
                continue
            stretch = times.of(start, end - 1)
            if stretch is None:
                continue
            wanted = OffsetRange(position.region, position.topic, position.partition, start, end)
            offsets.append(wanted)
            for split in self._files.that_may_hold(Wanted(position.source, wanted, *stretch)):
                found[id(split)] = replace(split, groups=(), positions=None)
        if not found:
            return NOTHING
        splits = sorted(found.values(), key=lambda split: (split.low, split.path))
        return SourceSlice(tuple(splits), tuple(offsets))
