"""Events that the window's output needs and that lie outside what is read: how many, how far, at either end.

The archive's metadata has bounds of event time and ingestion time for each file and each row group, the rows have the
truth. Bounds settle nearly everything; what they leave open is looked into, as far as a budget of rows goes; what the
budget leaves open is answered from the bounds, which is never too little.

Times are whole microseconds since 1970: event times can be garbage that no calendar holds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from rekappa.timeline import Window, micros

LOOK_ROWS = 5_000_000
"""How many rows are looked into for one answer."""
LOOK_FILES = 100
"""Of how many files the row groups are looked at for one answer."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A file, or one row group of it. Bounds are closed; None where nobody recorded them."""

    path: str
    rows: int
    happened: tuple[int, int] | None
    ingested: tuple[int, int] | None
    group: int | None = None


@dataclass(frozen=True, slots=True)
class Outside:
    """`early` events were ingested before what is read begins, the first of them at `earliest`; `late` ones after it
    ended, the last at `latest`. `ahead` is the greatest distance of an early event's own time from its ingestion, and
    `behind` that of a late one. Not `exact` where bounds had to answer: the truth is then no more than this.
    """

    early: int = 0
    earliest: int | None = None
    ahead: int = 0
    late: int = 0
    latest: int | None = None
    behind: int = 0
    exact: bool = True

    def plus(self, other: Outside) -> Outside:
        first = [one for one in (self.earliest, other.earliest) if one is not None]
        last = [one for one in (self.latest, other.latest) if one is not None]
        return Outside(
            self.early + other.early,
            min(first, default=None),
            max(self.ahead, other.ahead),
            self.late + other.late,
            max(last, default=None),
            max(self.behind, other.behind),
            self.exact and other.exact,
        )

    def before(self, reads: Window) -> timedelta:
        """How much earlier reading must begin to take in the early events: zero if there are none."""
        return timedelta(microseconds=0 if self.earliest is None else micros(reads.start) - self.earliest)

    def after(self, reads: Window) -> timedelta:
        """How much longer reading must go on to take in the late events: zero if there are none."""
        return timedelta(microseconds=0 if self.latest is None else self.latest - micros(reads.end) + 1)


@dataclass(frozen=True, slots=True)
class Demand:
    """Event times `wanted` against ingestion times `reads`, both [start, end)."""

    wanted: tuple[int, int]
    reads: tuple[int, int]

    @classmethod
    def of(cls, wanted: Window, reads: Window) -> Demand:
        return cls((micros(wanted.start), micros(wanted.end)), (micros(reads.start), micros(reads.end)))

    def may_miss(self, piece: Piece) -> bool:
        """False only if no row of the piece is both wanted and outside what is read."""
        if piece.happened and not (piece.happened[0] < self.wanted[1] and piece.happened[1] >= self.wanted[0]):
            return False
        return not (piece.ingested and self.reads[0] <= piece.ingested[0] and piece.ingested[1] < self.reads[1])

    def at_most(self, piece: Piece) -> Outside:
        """What the bounds of a piece allow. A piece whose ingestion is not known can't be answered for at all."""
        if not self.may_miss(piece) or piece.ingested is None:
            return Outside(exact=piece.ingested is not None)
        low, high = piece.ingested
        first = max(piece.happened[0], self.wanted[0]) if piece.happened else self.wanted[0]
        last = min(piece.happened[1], self.wanted[1] - 1) if piece.happened else self.wanted[1] - 1
        found = Outside(exact=False)
        if low < self.reads[0]:
            found = found.plus(Outside(early=piece.rows, earliest=low, ahead=max(last - low, 0)))
        if high >= self.reads[1]:
            found = found.plus(Outside(late=piece.rows, latest=high, behind=max(high - first, 0)))
        return found


def by_window(files: Iterable[Piece], windows: Sequence[Window]) -> list[tuple[Piece, ...]]:
    """For each window the files that can hold event times of it: a month has many of both, and few fit each other.

    Windows come in order, both their starts and their ends; they may overlap.
    """
    starts, ends = [micros(one.start) for one in windows], [micros(one.end) for one in windows]
    found: list[list[Piece]] = [[] for _ in windows]
    for file in files:
        low, high = file.happened or (starts[0], ends[-1])
        for at in range(bisect_right(ends, low), bisect_right(starts, high)):
            found[at].append(file)
    return [tuple(some) for some in found]


def outside(
    files: Iterable[Piece],
    demand: Demand,
    groups: Callable[[Piece], Sequence[Piece]],
    look: Callable[[Piece], Outside],
    *,
    rows: int = LOOK_ROWS,
    most: int = LOOK_FILES,
) -> Outside:
    """What is wanted and not read. `groups` answers a file's row groups, none if it can't tell; `look` the truth of
    one row group. Files with the fewest rows are looked into first, so that the budget goes far.
    """
    found = Outside()
    suspects = sorted((file for file in files if demand.may_miss(file)), key=lambda file: (file.rows, file.path))
    for number, file in enumerate(suspects):
        parts = groups(file) if number < most and rows > 0 else ()
        if not parts:
            found = found.plus(demand.at_most(file))
            continue
        for part in parts:
            if not demand.may_miss(part):
                continue
            if part.rows > rows:
                found = found.plus(demand.at_most(part))
                continue
            rows -= part.rows
            found = found.plus(look(part))
    return found
