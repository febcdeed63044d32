"""Catching up: micro-batches in Kafka's offsets, whatever the readers, killed wherever it may be."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from rekappa.plan.catch_up import Cursor, EndOffsets, Holdings, aligned_ends
from rekappa.plan.model import OffsetBounds, Split
from rekappa.plan.offsets import CutPoint, Position
from rekappa.timeline import EPOCH, TICK, Window

MINUTE = timedelta(minutes=1)
PARTITIONS = [Position(source, "eu", source, number) for source in ("plays", "shows") for number in range(2)]


@st.composite
def logs(draw: st.DrawFn) -> dict[Position, list[int | None]]:
    """For each partition the minute in which each offset was ingested, by and large in order; None holds no event."""
    found = {}
    for position in PARTITIONS:
        steps = draw(st.lists(st.none() | st.integers(-1, 3), max_size=25))
        minute, minutes = 2, []
        for step in steps:
            minute = max(0, minute + (step or 0))
            minutes.append(None if step is None else minute)
        found[position] = minutes
    return found


def points_of(log: dict[Position, list[int | None]]) -> list[CutPoint]:
    found: dict[tuple[Position, int], list[int]] = defaultdict(list)
    for position, minutes in log.items():
        for offset, minute in enumerate(minutes):
            if minute is not None:
                found[position, minute].append(offset)
    return [
        CutPoint(position, bucket(minute), min(own), max(own), len(own)) for (position, minute), own in found.items()
    ]


def bucket(minute: int) -> Window:
    return Window(EPOCH + minute * MINUTE, EPOCH + (minute + 1) * MINUTE)


@st.composite
def rounds(draw: st.DrawFn) -> tuple[dict[Position, list[int | None]], EndOffsets, EndOffsets]:
    log = draw(logs())
    starts = {position: draw(st.integers(0, len(minutes))) for position, minutes in log.items()}
    until = {position: draw(st.integers(starts[position], len(minutes))) for position, minutes in log.items()}
    return log, starts, until


@given(rounds(), st.integers(1, 12), st.integers(1, 5))
def test_ends_reach_the_hand_over_and_each_moves_something(
    told: tuple[dict[Position, list[int | None]], EndOffsets, EndOffsets], rows: int, span: int
) -> None:
    log, starts, until = told
    ends = aligned_ends(points_of(log), starts, until, max_rows=rows, max_span=span * MINUTE)
    before = dict(starts)
    for one in ends:
        assert all(one[position] >= at for position, at in before.items())
        assert one != before, "a batch that moves nothing"
        before = dict(one)
    assert before == dict(until)


@given(rounds(), st.data())
def test_killed_anywhere_every_reader_reads_every_offset_once_and_in_step(
    told: tuple[dict[Position, list[int | None]], EndOffsets, EndOffsets], data: st.DataObject
) -> None:
    log, starts, until = told
    sources = ["plays", "shows", "plays"]  # the third reads the first's source again, as a self-join does
    own: list[EndOffsets] = [{at: start for at, start in starts.items() if at.source == source} for source in sources]
    own[2] = {at: data.draw(st.integers(start, until[at])) for at, start in own[2].items()}
    begun = [dict(one) for one in own]
    read: list[dict[Position, list[int]]] = [defaultdict(list) for _ in sources]
    ends = aligned_ends(points_of(log), starts, until, max_rows=3, max_span=2 * MINUTE)
    cursor = Cursor(ends, own)
    batches = 0
    while not cursor.done:
        logged = [cursor.next(reader) for reader in range(len(sources))]
        assert logged != own, "a batch that moves nothing"
        if data.draw(st.booleans()):
            # Killed after the log was written: the batch is run again by the log, then a new cursor goes on.
            cursor = Cursor(ends, logged)
        for reader, one in enumerate(logged):
            for at, end in one.items():
                read[reader][at] += range(own[reader][at], end)
        own = logged
        batches += 1
    assert batches <= len(ends)
    for reader, source in enumerate(sources):
        for at in (at for at in PARTITIONS if at.source == source):
            assert read[reader][at] == list(range(begun[reader][at], until[at]))


@given(rounds())
def test_holdings_name_every_file_that_has_a_row(
    told: tuple[dict[Position, list[int | None]], EndOffsets, EndOffsets],
) -> None:
    log, starts, until = told
    points = points_of(log)
    files: dict[tuple[str, int], list[tuple[Position, int]]] = defaultdict(list)
    for at, minutes in log.items():
        for offset, minute in enumerate(minutes):
            if minute is not None:
                files[at.source, minute // 3].append((at, offset))
    splits = [_split(source, block, rows) for (source, block), rows in files.items()]
    holdings = Holdings(points, splits)
    for source in ("plays", "shows"):
        wanted = {at: end for at, end in until.items() if at.source == source}
        part = holdings.slice_of(starts, wanted)
        named = {split.path for split in part.splits}
        ranges = {(one.partition, offset) for one in part.offsets for offset in range(one.start, one.end)}
        for (own, block), rows in files.items():
            for at, offset in rows:
                if own == source and starts[at] <= offset < until[at]:
                    assert f"{own}-{block}" in named
                    assert (at.partition, offset) in ranges


def _split(source: str, block: int, rows: list[tuple[Position, int]]) -> Split:
    partitions, offsets = [at.partition for at, _ in rows], [offset for _, offset in rows]
    bounds = OffsetBounds(min(partitions), max(partitions), min(offsets), max(offsets))
    low, high = EPOCH + 3 * block * MINUTE, EPOCH + 3 * (block + 1) * MINUTE - TICK
    return Split(source, f"{source}-{block}", len(rows), 1, low, high, "eu", positions=bounds)
