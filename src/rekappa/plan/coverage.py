"""Where the events are that a run has still to read: in the archive, in Kafka, or nowhere.

    found = cover([Want(position, start=120)], {position: Kept(300, 900)}, {position: [(0, 640)]})
    found.stretches[0].hand_over == 640     the archive is read up to there, then Kafka

Offsets of one Kafka partition at a time; every range is half-open. A partition is read from the archive first and from
Kafka then, never back again, so one offset says all: where the one hands over to the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rekappa.plan.offsets import Position

Offsets = tuple[int, int]
"""Offsets [start, end)."""


@dataclass(frozen=True, slots=True)
class Want:
    """A partition that is to be read from `start` on. A batch that was begun reads up to `begun`: the source that goes
    on has to read all of it."""

    position: Position
    start: int
    begun: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """What Kafka has of a partition: offsets [first, end)."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class ReadStretch:
    """The archive has [start, hand_over), Kafka everything from `hand_over` on; `end` is where Kafka ended."""

    position: Position
    start: int
    hand_over: int
    end: int


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets [start, end) that are wanted and that nobody has, as far as can be told."""

    position: Position
    start: int
    end: int
    why: str

    def __str__(self) -> str:
        at = self.position
        offsets = f"offsets {self.start} to {self.end - 1}" if self.end > self.start else f"offset {self.start}"
        return f"topic {at.topic!r} in region {at.region!r}, partition {at.partition}, {offsets}: {self.why}"


@dataclass(frozen=True, slots=True)
class Coverage:
    """The answer for all partitions. With a hole, nothing should begin."""

    stretches: tuple[ReadStretch, ...] = ()
    holes: tuple[Hole, ...] = ()

    @property
    def from_archive(self) -> bool:
        """Whether anything is to be read from the archive."""
        return any(one.hand_over > one.start for one in self.stretches)

    @property
    def hand_over(self) -> dict[Position, int]:
        return {one.position: one.hand_over for one in self.stretches}


def dropped(wants: Iterable[Want], kept: Mapping[Position, Kept]) -> list[Want]:
    """The partitions of which Kafka no longer has all that is wanted."""
    return [want for want in wants if want.position in kept and want.start < kept[want.position].first]


def cover(
    wants: Iterable[Want], kept: Mapping[Position, Kept], archived: Mapping[Position, Sequence[Offsets]]
) -> Coverage:
    """Read from the archive whatever it has, even where Kafka has it too, and the rest from Kafka.

    The archive keeps all sources in step, and hands over as late as it can, which leaves the most time before Kafka
    drops what comes next. `archived` are the stretches without a gap; Kafka was asked after the archive was.
    """
    stretches: list[ReadStretch] = []
    holes: list[Hole] = []
    for want in wants:
        found = _one(want, kept.get(want.position), archived.get(want.position, ()))
        if isinstance(found, Hole):
            holes.append(found)
        else:
            stretches.append(found)
    return Coverage(tuple(stretches), tuple(holes))


def _one(want: Want, kept: Kept | None, archived: Sequence[Offsets]) -> ReadStretch | Hole:
    start = want.start
    if kept is None:
        return Hole(want.position, start, start, "the topic has no such partition: it was created anew")
    if start > kept.end:
        return Hole(want.position, start, start, f"the topic ends at offset {kept.end}: it was created anew")
    reached = next((end for first, end in archived if first <= start < end), start)
    if reached > kept.end:
        return Hole(want.position, kept.end, reached, "the archive has offsets that the topic does not reach")
    if reached < kept.first:
        later = min((first for first, _ in archived if first > reached), default=kept.first)
        return Hole(want.position, reached, min(later, kept.first), _why(archived, reached, kept))
    if reached < want.begun:
        return Hole(
            want.position, reached, want.begun, "the archive does not reach the end of what was begun: it is behind"
        )
    return ReadStretch(want.position, start, reached, kept.end)


def _why(archived: Sequence[Offsets], reached: int, kept: Kept) -> str:
    gone = f"Kafka has dropped everything below {kept.first}"
    if not archived:
        return f"{gone}, and the archive has nothing of it"
    first, last = min(one[0] for one in archived), max(one[1] for one in archived)
    if reached < first:
        return f"{gone}, and the archive begins at {first}"
    if reached >= last:
        return f"{gone}, and the archive ends at {last}: the router is behind"
    return f"{gone}, and the archive has a gap there"


def without(first: int, end: int, gaps: Iterable[tuple[int, int]]) -> list[Offsets]:
    """[first, end) without these gaps, which are inclusive at both ends and in order."""
    found: list[Offsets] = []
    at = first
    for low, high in gaps:
        if low > at:
            found.append((at, min(low, end)))
        at = max(at, high + 1)
    if at < end:
        found.append((at, end))
    return found
