"""Ordered slices: read in parallel, yet no record overtakes another that is older by more than the bound.

The promise: if record b is more than `max_misalignment` younger than record a, then a's slice is not after b's,
whichever sources they come from. Why it holds: the pieces of all sources are sorted by their lowest time, and
no piece spans more than the bound. If a's piece stands after b's, then a is not older than the lowest time of
b's piece, so b is at most the bound younger. Where the sorted list is cut into slices does not matter, so rows
and span may decide that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain, pairwise
from operator import attrgetter

from rekappa.errors import PlanError
from rekappa.plan.cut import merge, pieces
from rekappa.plan.model import Slice, SourceSlice, Split
from rekappa.timeline import TICK, Window, format_duration

MAX_ROWS = 5_000_000
GOOD_ROWS = 1_000_000
GOOD_BYTES = 64 * 1024**2
FEWEST = 8


def plan_slices(
    splits: Iterable[Split],
    *,
    max_misalignment: timedelta | Mapping[str, timedelta],
    reads: Window,
    max_rows: int = MAX_ROWS,
    max_span: timedelta | None = None,
    regions: Collection[str] = (),
    apart: Collection[datetime] = (),
) -> tuple[Slice, ...]:
    """The slices that read every row of `splits` whose ingestion time is in `reads`, each row once.

    With a bound per source the smallest one holds for all of them, since it is about every pair of records.
    A slice takes the pieces that begin in one cell of a grid from the start of `reads`, `max_span` wide (the bound, if
    None), and is closed before it exceeds `max_rows`; a piece that is larger than that makes a slice of its own. No
    piece spans more than the bound, nor more than `max_span`. Stretches without data make no slice. `regions`, if any
    are named, leaves out the splits of the others. No slice has rows on both sides of an instant of `apart`. The order
    of `splits` does not matter.
    """
    inside = sorted({instant for instant in apart if reads.start < instant < reads.end})
    if inside:
        edges, listed = [reads.start, *inside, reads.end], list(splits)
        stretches = [
            plan_slices(
                listed, max_misalignment=max_misalignment, reads=Window(start, end), max_rows=max_rows,
                max_span=max_span, regions=regions,
            )
            for start, end in pairwise(edges)
        ]  # fmt: skip
        return tuple(replace(part, number=number) for number, part in enumerate(chain(*stretches)))
    bound = _bound(max_misalignment)
    span = bound if max_span is None else max_span
    if span <= timedelta():
        raise PlanError(f"Cannot plan slices of {format_duration(span)}", hint="A slice must span some time.")
    if max_rows < 1:
        raise PlanError(f"Cannot plan slices of {max_rows} rows", hint="A slice must take at least one row.")

    start, end, widest = reads.start, reads.end, min(bound, span)
    whole: list[Split] = []
    parents: dict[int, int] = {}
    for number, split in enumerate(splits):
        if regions and split.region and split.region not in regions:
            continue
        if split.cut is None and start <= split.low and split.high < end and split.high - split.low <= widest:
            whole.append(split)  # nearly all files are like this one: what follows would come to the same, slower
            continue
        before = len(whole)
        whole.extend(pieces(split, reads, widest))
        if len(whole) - before > 1:
            # Pieces stay alive in `whole`, so their ids are theirs alone.
            parents.update((id(piece), number) for piece in whole[before:])
    _sort(whole)
    return tuple(_slice(number, parts, parents) for number, parts in enumerate(_batches(whole, reads, span, max_rows)))


def wide_span(
    splits: Iterable[Split], *, max_misalignment: timedelta | Mapping[str, timedelta], reads: Window
) -> timedelta:
    """A span for the slices of a job that takes the events of a slice in any order: a multiple of the bound.

    Wide enough for `GOOD_ROWS` rows, because the cost of a micro-batch that does not depend on its rows is then a small
    part of it, as is what stays in the state from one to the next; but not for more than `GOOD_BYTES` in files, since a
    join holds all rows of a slice, nor so wide that there would be fewer than `FEWEST` slices to report progress by and
    resume from.
    """
    bound = _bound(max_misalignment)
    listed = list(splits)
    rows, size = sum(split.rows for split in listed), sum(split.bytes for split in listed)
    share = min(1 / FEWEST, GOOD_ROWS / max(rows, 1), GOOD_BYTES / max(size, 1))
    return max(1, reads.length * share // bound) * bound


def _bound(value: timedelta | Mapping[str, timedelta]) -> timedelta:
    bounds = value if isinstance(value, Mapping) else {"": value}
    for source, bound in bounds.items():
        if bound <= timedelta():
            named = f" of source {source!r}" if source else ""
            raise PlanError(
                f"Cannot keep order within {format_duration(bound)}: max_misalignment{named} must be above zero",
                hint="Use mode strict for exact order per Kafka partition.",
            )
    return min(bounds.values(), default=timedelta(minutes=15))


def _order(split: Split) -> tuple[object, ...]:
    return (split.low, split.source, split.path, split.high)


def _sort(splits: list[Split]) -> None:
    """By `_order`, in half the time: few splits begin at the same instant, so the rest of the key is rarely needed."""
    splits.sort(key=attrgetter("low"))
    first = 0
    for place in range(1, len(splits) + 1):
        if place == len(splits) or splits[place].low != splits[first].low:
            if place - first > 1:
                splits[first:place] = sorted(splits[first:place], key=_order)
            first = place


def _batches(ordered: list[Split], reads: Window, span: timedelta, max_rows: int) -> Iterator[list[Split]]:
    """The list in consecutive runs, one for each slice."""
    batch: list[Split] = []
    rows = 0
    until = reads.start
    for split in ordered:
        if split.low >= until or (batch and rows + split.rows > max_rows):
            if batch:
                yield batch
            batch, rows = [], 0
            until = reads.start + ((split.low - reads.start) // span + 1) * span
        batch.append(split)
        rows += split.rows
    if batch:
        yield batch


def _slice(number: int, parts: list[Split], parents: Mapping[int, int]) -> Slice:
    reach = Window(parts[0].low, max(part.high for part in parts) + TICK)
    sources: dict[str, list[Split]] = {}
    families: dict[int, list[Split]] = {}
    for part in parts:
        family = parents.get(id(part))
        if family is None:
            sources.setdefault(part.source, []).append(_planned(part))
        else:
            families.setdefault(family, []).append(part)
    for pieces_of_one in families.values():
        joined = _planned(merge(pieces_of_one))
        sources.setdefault(joined.source, []).append(joined)
    if families:
        for splits in sources.values():
            splits.sort(key=_order)
    return Slice(number, {name: SourceSlice(tuple(sources[name])) for name in sorted(sources)}, reach)


def _planned(split: Split) -> Split:
    """Without what only the planner needed to know."""
    return replace(split, groups=(), positions=None) if split.groups or split.positions else split
