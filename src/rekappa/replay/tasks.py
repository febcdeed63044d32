"""Sharing a slice out among tasks: about one per core, equal in bytes. Standard library only, but for footers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from rekappa.plan.encode import micros
from rekappa.plan.model import OffsetRange, SourceSlice, Split
from rekappa.replay.reader import Piece

T = TypeVar("T")

SMALLEST_TASK = 512 * 1024
"""A task costs some milliseconds whatever it reads: less than this many bytes are not worth one."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one task of a micro-batch reads; with `offsets`, only these, in each partition's order."""

    pieces: tuple[Piece, ...]
    offsets: tuple[OffsetRange, ...] = ()


def share_out(
    part: SourceSlice,
    tasks: int,
    *,
    regions: Sequence[str] = (),
    row_groups: Callable[[str], Sequence[int]] = lambda path: (),
    deleted: Callable[[str], bytes] = lambda path: b"",
) -> list[Task]:
    """Divide what a micro-batch reads of one source into at most about `tasks` tasks.

    `row_groups` answers the bytes of each row group of a file, asked only for files that must be divided.
    `deleted` answers the positions of a file's deleted rows. All offsets of a Kafka partition stay in one task,
    because only there can they be put in order.
    """
    sized = [(split.bytes, _piece(split, regions, deleted)) for split in part.splits]
    if not sized:
        return []
    if part.offsets:
        pieces = tuple(piece for _, piece in sized)
        # A range of a partition that has no rows is nobody's work.
        ranges = [(one.end - one.start, one) for one in part.offsets if one.end > one.start]
        count = min(tasks, max(1, part.bytes // SMALLEST_TASK))
        return [Task(pieces, tuple(offsets)) for offsets in _pack(ranges, count) if offsets]
    total = sum(size for size, _ in sized)
    count = max(1, min(tasks, total // SMALLEST_TASK))
    divided = [
        smaller
        for size, piece in sized
        for smaller in (_divide(size, piece, row_groups) if size > 1.2 * total / count else [(size, piece)])
    ]
    return [Task(tuple(pieces)) for pieces in _pack(divided, count) if pieces]


def _piece(split: Split, regions: Sequence[str], deleted: Callable[[str], bytes]) -> Piece:
    cut = None if split.cut is None else (micros(split.cut.start), micros(split.cut.end))
    mixed = tuple(regions) if regions and not split.region else ()
    return Piece(split.path, split.row_groups, cut, mixed, deleted(split.path) if split.deletes else b"")


def _divide(size: int, piece: Piece, row_groups: Callable[[str], Sequence[int]]) -> list[tuple[int, Piece]]:
    sizes = row_groups(piece.path)
    chosen = range(len(sizes)) if piece.row_groups is None else piece.row_groups
    if len(chosen) < 2:
        return [(size, piece)]
    return [(sizes[number], replace(piece, row_groups=(number,))) for number in chosen]


def _pack(sized: Sequence[tuple[int, T]], count: int) -> list[list[T]]:
    """The largest first, each to the bin that has least: within a third of the best there is."""
    bins: list[list[T]] = [[] for _ in range(count)]
    load = [0] * count
    for size, item in sorted(sized, key=lambda pair: -pair[0]):
        least = load.index(min(load))
        bins[least].append(item)
        load[least] += size
    return bins
