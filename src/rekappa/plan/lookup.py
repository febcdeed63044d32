"""Finding the splits that may hold some offsets, without looking at all of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate

from rekappa.plan.model import OffsetRange, Split, source_of

_EVER = datetime.min.replace(tzinfo=UTC)
_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Offsets that one reader reads, and the closed stretch of time in which their rows lie, as far as it is known."""

    source: str
    offsets: OffsetRange
    low: datetime = _EVER
    high: datetime = _NEVER

    @property
    def has_times(self) -> bool:
        return self.low is not _EVER or self.high is not _NEVER


class Files:
    """The splits, findable by source, region, time and offset. A split that names no region may hold any."""

    def __init__(self, splits: list[Split]) -> None:
        groups: dict[tuple[str, str], list[Split]] = {}
        for split in splits:
            groups.setdefault((split.source, split.region), []).append(split)
        self._groups = {key: _Group(own) for key, own in groups.items()}

    def that_may_hold(self, wanted: Wanted) -> Iterator[Split]:
        for region in dict.fromkeys((wanted.offsets.region, "")):
            group = self._groups.get((source_of(wanted.source), region))
            if group is not None:
                yield from group.by_time(wanted) if wanted.has_times else group.by_offset(wanted.offsets)


class _Group:
    """Splits of one source and region, in two orders.

    In each the lower bounds are sorted and the highest upper bound so far only grows, so that both can be
    searched: what can overlap lies between the two places found.
    """

    def __init__(self, own: list[Split]) -> None:
        self._timed = sorted(own, key=lambda split: (split.low, split.path))
        self._lows = [split.low for split in self._timed]
        self._highs = list(accumulate((split.high for split in self._timed), max))
        placed = [(split.positions.low_offset, split.positions.high_offset, split) for split in own if split.positions]
        placed.sort(key=lambda entry: entry[:2])
        self._placed = [split for _, _, split in placed]
        self._firsts = [first for first, _, _ in placed]
        self._lasts = list(accumulate((last for _, last, _ in placed), max))
        self._unplaced = [split for split in self._timed if split.positions is None]

    def by_time(self, wanted: Wanted) -> Iterator[Split]:
        for split in self._timed[bisect_left(self._highs, wanted.low) : bisect_right(self._lows, wanted.high)]:
            if split.high >= wanted.low and (split.positions is None or split.positions.may_hold(wanted.offsets)):
                yield split

    def by_offset(self, wanted: OffsetRange) -> Iterator[Split]:
        yield from self._unplaced
        for split in self._placed[bisect_left(self._lasts, wanted.start) : bisect_left(self._firsts, wanted.end)]:
            if split.positions is not None and split.positions.may_hold(wanted):
                yield split
