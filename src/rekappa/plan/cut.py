"""Cutting splits: to the stretch that is read, and wide files into pieces that keep the bound.

A file is *wide* if its rows span more ingestion time than the bound allows, as a compacted one may. Its pieces
are the cells of one grid, the same for all files, so that pieces of many wide files fall into the same slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from rekappa.errors import PlanError
from rekappa.plan.model import Split
from rekappa.timeline import TICK, Window, format_duration, format_instant

"""The resolution of all times here: the last instant of a half-open stretch is its end less this."""

MOST_PIECES = 100_000
"""No file is cut into more pieces than this: the bound that asks for it is a mistake."""


def clip(split: Split, reads: Window) -> Split | None:
    """The part of the split that lies in `reads`: the split itself if all of it does, None if nothing can."""
    if split.cut is None and reads.start <= split.low and split.high < reads.end:
        return split
    stretch = _common(reads, split.cut)
    if stretch is None or not stretch.overlaps(split.low, split.high):
        return None
    return _piece(split, stretch)


def is_wide(split: Split, reads: Window, widest: timedelta) -> bool:
    """Whether what is read of the split spans more than `widest`."""
    return min(split.high, reads.end - TICK) - max(split.low, reads.start) > widest


def pieces(split: Split, reads: Window, widest: timedelta) -> Iterator[Split]:
    """The part of the split that lies in `reads`, in pieces whose high is at most `widest` above their low.

    Each row of that part belongs to exactly one piece. A stretch in which no row group has rows gives no piece.
    """
    part = clip(split, reads)
    if part is None:
        return
    if part.high - part.low <= widest:
        yield part
        return
    first = (part.low - reads.start) // widest
    last = (part.high - reads.start) // widest
    if last - first >= MOST_PIECES:
        raise PlanError(
            f"Cannot cut {split.path} into pieces of {format_duration(widest)}: its rows span "
            f"{format_instant(part.low)} .. {format_instant(part.high)}",
            hint=f"Raise max_misalignment of source {split.source!r}, or compact its archive by the hour.",
        )
    bounds = _common(reads, split.cut) or reads
    for cell in range(first, last + 1):
        start = reads.start + cell * widest
        piece = _piece(split, Window(max(start, bounds.start), min(start + widest, bounds.end)))
        if piece is not None:
            yield piece


def merge(parts: list[Split]) -> Split:
    """One split for several pieces of the same split, so that a slice reads the file once."""
    if len(parts) == 1:
        return parts[0]
    cuts = [part.cut for part in parts if part.cut is not None]
    return replace(
        parts[0],
        rows=sum(part.rows for part in parts),
        bytes=sum(part.bytes for part in parts),
        low=min(part.low for part in parts),
        high=max(part.high for part in parts),
        cut=Window(min(cut.start for cut in cuts), max(cut.end for cut in cuts)),
    )


def _piece(split: Split, stretch: Window) -> Split | None:
    low, high = max(split.low, stretch.start), min(split.high, stretch.end - TICK)
    if low > high:
        return None
    if not split.groups:
        rows = _share(split.rows, split.low, split.high, stretch)
        size = _share(split.bytes, split.low, split.high, stretch)
        return replace(split, rows=rows, bytes=size, low=low, high=high, cut=stretch)
    groups = [group for group in split.groups if stretch.overlaps(group.low, group.high)]
    if not groups:
        return None
    rows = sum(_share(group.rows, group.low, group.high, stretch) for group in groups)
    return replace(
        split,
        rows=rows,
        bytes=split.bytes * rows // split.rows if split.rows else 0,
        low=max(low, min(group.low for group in groups)),
        high=min(high, max(group.high for group in groups)),
        cut=stretch,
    )


def _share(total: int, low: datetime, high: datetime, stretch: Window) -> int:
    """The part of `total`, spread evenly over [low, high], that falls into the stretch. Neighbours add up."""
    span = high - low + TICK
    before = max(stretch.start - low, timedelta())
    until = min(stretch.end - low, span)
    return total * (until // TICK) // (span // TICK) - total * (before // TICK) // (span // TICK)


def _common(reads: Window, cut: Window | None) -> Window | None:
    """What two stretches have in common, if anything."""
    if cut is None:
        return reads
    start, end = max(reads.start, cut.start), min(reads.end, cut.end)
    return Window(start, end) if start < end else None
