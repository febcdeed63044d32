"""Exact slices: production's own micro-batches, those that the window's output depends on.

    chosen = batches_to_replay(recorded, needed, closes=window_end_and_more)
    slices = exact_slices(chosen, splits)

Why this is exact. A row of the window comes from events whose times lie in a known stretch (the plan's reads). `needed`
says which offsets of each partition hold such events, late ones and early ones alike, so the first batch that reads
any of them is known from the data: a batch may have read far ahead of its watermark. From there on every batch reads
what it read in production and runs with the watermark that it had in production, and the batch before it is there
as an empty one, because Spark drops late events by the watermark of the batch before. So what is in state, what is
late and what comes out are production's for every row of the window; rows outside it may lack inputs, and are held
back. More batches on either side change nothing, so doubts are settled by taking more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise

from rekappa.errors import PlanError
from rekappa.plan.lookup import Files, Wanted
from rekappa.plan.model import OffsetRange, Slice, Split
from rekappa.plan.offsets import Position, slice_of

NO_WATERMARK = datetime(1970, 1, 1, tzinfo=UTC)
"""What Spark takes for the watermark before any event has moved it."""


@dataclass(frozen=True, slots=True)
class RecordedBatch:
    """A micro-batch that production ran: for each partition, the offset that it read up to, exclusive.

    `watermark` is the one it ran with, None before any. Number -1 says where the first one began.
    """

    number: int
    ends: Mapping[Position, int] = field(default_factory=dict)
    watermark: datetime | None = None


@dataclass(frozen=True, slots=True)
class Needed:
    """The first and the last offset of one partition, both inclusive, of events that the window may depend on."""

    first: int
    last: int


def batches_to_replay(
    batches: Sequence[RecordedBatch], needed: Mapping[Position, Needed], closes: datetime | None
) -> Sequence[RecordedBatch]:
    """The batches that read any of the needed events, all between them, and those until `closes`.

    The first of the answer is the batch to begin after: it is not replayed, but says where the next one starts. The
    answer is empty if none read any. `closes` is the watermark at which the window's last row has surely come out; None
    replays to the last batch there is. Refuses batches that are not recorded and needed.
    """
    for earlier, later in pairwise(batches):
        if later.number != earlier.number + 1:
            raise PlanError(
                f"Cannot replay exactly: no record of the batches between {earlier.number} and {later.number}",
                hint="Choose a window whose batches are all recorded, or mode ordered.",
            )
    reading = _reading(batches, needed)
    if not reading:
        return ()
    if batches[0].number >= 0 and any(want.first < batches[0].ends.get(at, 0) for at, want in needed.items()):
        raise PlanError(
            f"Cannot replay exactly: the records begin with batch {batches[0].number}, but events that the window "
            "depends on were read before or in it",
            hint="Choose a later window, or mode ordered.",
        )
    last = len(batches) - 1
    if closes is not None:
        passed = (at for at in range(reading[-1], len(batches)) if (batches[at].watermark or NO_WATERMARK) >= closes)
        # One batch more: what one operator lets go, the next may get a batch later.
        last = min(next(passed, last) + 1, last)
    return batches[reading[0] - 1 : last + 1]


def _reading(batches: Sequence[RecordedBatch], needed: Mapping[Position, Needed]) -> list[int]:
    """Indexes of the batches that read a needed offset."""
    found = []
    reached = dict(batches[0].ends) if batches else {}
    for at, batch in enumerate(batches[1:], 1):
        reads = False
        for position, end in batch.ends.items():
            want = needed.get(position)
            start = reached.get(position, 0)
            reads = reads or (want is not None and start < end and start <= want.last and want.first < end)
            reached[position] = end
        if reads:
            found.append(at)
    return found


def exact_slices(batches: Sequence[RecordedBatch], splits: Iterable[Split]) -> tuple[Slice, ...]:
    """One slice for each batch after the first, in production's order, each with the watermark that it ran with.

    A batch that read nothing is an empty slice. The first one becomes an empty slice as well where it had a watermark:
    late events are told by the watermark of the batch before. A partition that appears only later began at offset 0,
    as a new partition does. Refuses offsets that go back: those are two runs, not one.
    """
    files = Files(list(splits))
    before, *after = batches
    reached = dict(before.ends)
    slices = [Slice(0, {}, None, before.watermark)] if before.watermark is not None else []
    for batch in after:
        wanted = []
        for position, end in sorted(batch.ends.items()):
            start = reached.get(position, 0)
            if end < start:
                raise PlanError(
                    f"Cannot replay batch {batch.number}: partition {position.partition} of {position.topic!r} "
                    f"in region {position.region!r} goes back from offset {start} to {end}",
                    hint="The batches of one run only go forward: choose the batches of a single run.",
                )
            if end > start:
                offsets = OffsetRange(position.region, position.topic, position.partition, start, end)
                wanted.append(Wanted(position.source, offsets))
            reached[position] = end
        part = slice_of(len(slices), wanted, files)
        slices.append(replace(part, watermark=batch.watermark or NO_WATERMARK))
    return tuple(slices)
