"""Exact mode: production's recorded micro-batches as slices of the archive.

A batch is recorded as plain values, so that records of any age and origin can be used:

    {"batch": 7, "positions": [{"source": "plays", "region": "eu", "topic": "plays", "ends": {"0": 120, "1": 98}}]}

Batch -1 says where the first one began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import dropwhile, pairwise
from typing import Any

from rekappa.errors import PlanError
from rekappa.plan.model import Slice, Split
from rekappa.plan.offsets import Position, RecordedBatch, exact_slices


def recorded_slices(records: Iterable[Mapping[str, Any]], splits: Iterable[Split]) -> tuple[Slice, ...]:
    """One slice per recorded batch, from the first to the last that any of the splits can hold rows of.

    Batches without data in between are empty slices: they moved production's watermark, and so they do here.
    Refuses records with a batch missing: its rows would be missing as well.
    """
    batches = sorted((_batch(record) for record in records), key=lambda batch: batch.number)
    if not batches:
        raise PlanError(
            "Cannot replay exactly: no micro-batches of production are recorded",
            hint="Only runs started with `rekappa run` record them. Use mode ordered for older output.",
        )
    for earlier, later in pairwise(batches):
        if later.number != earlier.number + 1:
            raise PlanError(
                f"Cannot replay exactly: no record of the batches between {earlier.number} and {later.number}",
                hint="Choose a window whose batches are all recorded, or mode ordered.",
            )
    # Without a record of the beginning, the first batch can only say where the second one starts.
    before: Mapping[Position, int] = batches[0].ends
    slices = exact_slices(batches[1:], splits, before=before)
    return _numbered(_without_ends(slices))


def _batch(record: Mapping[str, Any]) -> RecordedBatch:
    ends = {
        Position(one["source"], one["region"], one["topic"], int(partition)): int(end)
        for one in record["positions"]
        for partition, end in one["ends"].items()
    }
    return RecordedBatch(int(record["batch"]), ends)


def _without_ends(slices: Sequence[Slice]) -> list[Slice]:
    """Without the batches before and after those that the splits hold."""
    kept = list(dropwhile(_holds_nothing, slices))
    # An empty batch right after the last one with rows still moves the watermark: it stays.
    last = max((at for at, part in enumerate(kept) if not _holds_nothing(part)), default=-1)
    tail = last + 1
    while tail < len(kept) and not kept[tail].sources:
        tail += 1
    return kept[:tail]


def _holds_nothing(part: Slice) -> bool:
    return not any(one.splits for one in part.sources.values())


def _numbered(slices: Iterable[Slice]) -> tuple[Slice, ...]:
    return tuple(replace(part, number=number) for number, part in enumerate(slices))
