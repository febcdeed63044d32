"""Exact slices: production's own batches, those that the window depends on, judged by a model of Spark's state."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekappa.errors import PlanError
from rekappa.plan.model import OffsetBounds, OffsetRange, Slice, Split, reader
from rekappa.plan.offsets import Position
from rekappa.plan.recorded import NO_WATERMARK, Needed, RecordedBatch, batches_to_replay, exact_slices
from rekappa.replay.batches import positions

T0 = datetime(2026, 11, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DELAY, LENGTH, GAP, NEAR = 4, 10, 6, 5
Row = tuple[object, ...]


def at(minutes: float) -> datetime:
    return T0 + minutes * MINUTE


@dataclass(frozen=True)
class Batch:
    """One micro-batch of the model: for each source the minutes of its events; and the watermarks it runs with."""

    events: dict[str, list[int]]
    late: int
    watermark: int


def tumbling(batches: Sequence[Batch]) -> Counter[Row]:
    """Count per window of ten minutes; a row's time is the window's start."""
    out: Counter[Row] = Counter()
    state: Counter[int] = Counter()
    for batch in batches:
        for source, minutes in batch.events.items():
            for minute in minutes:
                start = minute // LENGTH * LENGTH
                if start + LENGTH > batch.late and source == "a":
                    state[start] += 1
        for start in [start for start in state if start + LENGTH <= batch.watermark]:
            out[start, state.pop(start)] += 1
    return out


def sessions(batches: Sequence[Batch]) -> Counter[Row]:
    """Sessions of events less than the gap apart; a row's time is the session's start."""
    out: Counter[Row] = Counter()
    state: list[tuple[int, int, int]] = []
    for batch in batches:
        fresh = [(minute, minute + GAP, 1) for minute in batch.events["a"] if minute + GAP > batch.late]
        merged: list[tuple[int, int, int]] = []
        for start, end, count in sorted(state + fresh):
            if merged and start <= merged[-1][1]:
                before = merged.pop()
                merged.append((before[0], max(before[1], end), before[2] + count))
            else:
                merged.append((start, end, count))
        out.update((one[0], *one[1:]) for one in merged if one[1] <= batch.watermark)
        state = [one for one in merged if one[1] > batch.watermark]
    return out


def left_join(batches: Sequence[Batch]) -> Counter[Row]:
    """Each a with the b's up to five minutes after it, or alone once no such b can come; a row's time is a's."""
    out: Counter[Row] = Counter()
    left: list[list[int]] = []
    right: list[int] = []
    for batch in batches:
        fresh = [minute for minute in batch.events["b"] if minute > batch.late]
        for one in left:
            pairs = [minute for minute in fresh if one[0] <= minute <= one[0] + NEAR]
            out.update((one[0], minute) for minute in pairs)
            one[1] += len(pairs)
        right += fresh
        for minute in batch.events["a"]:
            if minute > batch.late:
                pairs = [other for other in right if minute <= other <= minute + NEAR]
                out.update((minute, other) for other in pairs)
                left.append([minute, len(pairs)])
        for one in [one for one in left if one[0] + NEAR < batch.watermark]:
            left.remove(one)
            if not one[1]:
                out[one[0], None] += 1
        right = [minute for minute in right if minute >= batch.watermark]
    return out


def stateless(batches: Sequence[Batch]) -> Counter[Row]:
    return Counter((minute,) for batch in batches for minute in batch.events["a"])


SHAPES: dict[str, tuple[Callable[[Sequence[Batch]], Counter[Row]], int, int, bool]] = {
    "tumbling": (tumbling, 0, LENGTH, False),
    "sessions": (sessions, GAP, GAP, True),
    "left_join": (left_join, 0, NEAR, False),
    "stateless": (stateless, 0, 0, False),
}
"""A model, how far before and after a row's time its inputs lie, and whether nothing bounds the latter."""

MOMENTS = st.one_of(st.integers(0, 60), st.integers(40, 60), st.integers(0, 200))


@st.composite
def histories(draw: st.DrawFn) -> tuple[dict[str, list[int]], list[dict[str, int]]]:
    """Logs of two sources in arrival order, late and early events among them, and the ends of each batch."""
    drift = draw(st.sampled_from([0, 1, 3]))
    logs = {
        source: [drift * place // 2 + minute for place, minute in enumerate(draw(st.lists(MOMENTS, max_size=40)))]
        for source in "ab"
    }
    reached = dict.fromkeys(logs, 0)
    batches = [dict(reached)]
    for _ in range(draw(st.integers(1, 25))):
        for source, log in logs.items():
            step = draw(st.sampled_from([0, 0, 1, 2, 5, 40]))
            reached[source] = min(reached[source] + step, len(log))
        batches.append(dict(reached))
    return logs, batches


def production(logs: dict[str, list[int]], ends: list[dict[str, int]], restarts: set[int]) -> list[Batch]:
    """What Spark makes of it. After a restart it knows the watermark, but no longer each source's."""
    made: list[Batch] = []
    own: dict[str, int] = {}
    watermark = late = 0
    for number, (before, after) in enumerate(pairwise(ends)):
        if number in restarts:
            own = {}
        events = {source: log[before[source] : after[source]] for source, log in logs.items()}
        made.append(Batch(events, late, watermark))
        late = watermark
        for source, minutes in events.items():
            own[source] = max([own.get(source, 0), *(minute - DELAY for minute in minutes)])
        watermark = max(watermark, min(own.values()))
    return made


@settings(max_examples=300, deadline=None)
@given(histories(), st.integers(0, 60), st.integers(1, 30), st.sets(st.integers(0, 25), max_size=3), st.data())
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_chosen_gives_productions_rows(
    shape: str,
    history: tuple[dict[str, list[int]], list[dict[str, int]]],
    start: int,
    length: int,
    restarts: set[int],
    data: st.DataObject,
) -> None:
    logs, ends = history
    model, before, after, open_ended = SHAPES[shape]
    ran = production(logs, ends, restarts)
    reads = range(start - before, start + length + after + DELAY + 1)
    recorded = [
        RecordedBatch(number - 1, {place(source): end for source, end in own.items()}, _mark(ran, number - 1))
        for number, own in enumerate(ends)
    ]
    needed = {
        place(source): Needed(min(found), max(found))
        for source, log in logs.items()
        if (found := [offset for offset, minute in enumerate(log) if minute in reads])
    }
    closes = None if open_ended else at(reads.stop + before + after + DELAY)
    chosen = batches_to_replay(recorded, needed, closes)
    live = _within(model(ran), start, length)
    if not chosen:
        assert not live
        return
    first = chosen[0].number + 1
    replayed = ran[first : chosen[-1].number + 1]
    assert _within(model(replayed), start, length) == live
    assert len(chosen) <= len(recorded)


def place(source: str) -> Position:
    return Position(source, "eu", source, 0)


def _mark(ran: list[Batch], number: int) -> datetime | None:
    return at(ran[number].watermark) if number >= 0 and ran[number].watermark else None


def _within(rows: Counter[Row], start: int, length: int) -> Counter[Row]:
    return Counter({row: count for row, count in rows.items() if start <= int(str(row[0])) < start + length})


def test_batches_that_do_not_matter_are_left_out() -> None:
    ends = [{place("a"): 10 * number} for number in range(11)]
    recorded = [RecordedBatch(number - 1, own, at(10 * (number - 1))) for number, own in enumerate(ends)]
    chosen = batches_to_replay(recorded, {place("a"): Needed(35, 44)}, at(55))
    assert [batch.number for batch in chosen] == [2, 3, 4, 5, 6, 7]
    to_the_end = batches_to_replay(recorded, {place("a"): Needed(35, 44)}, None)
    assert [batch.number for batch in to_the_end] == list(range(2, 10))
    assert batches_to_replay(recorded, {place("a"): Needed(200, 300)}, None) == ()
    assert batches_to_replay(recorded, {}, None) == ()


def test_the_slices_are_productions_batches_with_their_watermarks() -> None:
    split = Split("a", "f", 30, 30, T0, T0, "eu", positions=OffsetBounds(0, 0, 0, 29))
    batches = [
        RecordedBatch(4, {place("a"): 10}, at(3)),
        RecordedBatch(5, {place("a"): 20}, at(5)),
        RecordedBatch(6, {place("a"): 20}, at(9)),
        RecordedBatch(7, {place("a"): 30}, at(9)),
    ]
    slices = exact_slices(batches, [split])
    assert [(part.rows, part.watermark) for part in slices] == [(0, at(3)), (10, at(5)), (0, at(9)), (10, at(9))]
    assert [part.number for part in slices] == [0, 1, 2, 3]
    assert slices[2] == Slice(2, {}, None, at(9))
    assert [o for part in slices for one in part.sources.values() for o in one.offsets] == [
        OffsetRange("eu", "a", 0, 10, 20),
        OffsetRange("eu", "a", 0, 20, 30),
    ]
    begun = exact_slices([RecordedBatch(-1, {place("a"): 0}), RecordedBatch(0, {place("a"): 10})], [split])
    assert [(part.rows, part.watermark) for part in begun] == [(10, NO_WATERMARK)]


def test_readers_of_one_source_have_offsets_of_their_own_and_share_its_files() -> None:
    split = Split("a", "f", 30, 30, T0, T0, "eu", positions=OffsetBounds(0, 0, 0, 29))
    second = place("a")._replace(source=reader("a", 1))
    batches = [
        RecordedBatch(-1, {place("a"): 0, second: 0}),
        RecordedBatch(0, {place("a"): 10, second: 12}),
        RecordedBatch(1, {place("a"): 20, second: 20}),
    ]
    slices = exact_slices(batches, [split])
    ends = [{name: [o.end for o in one.offsets] for name, one in part.sources.items()} for part in slices]
    assert ends == [{"a": [10], "a#2": [12]}, {"a": [20], "a#2": [20]}]
    assert all(one.splits == (replace(split, positions=None),) for part in slices for one in part.sources.values())


def test_lines_of_the_log_belong_to_readers_in_the_order_of_the_query() -> None:
    feeds = [("a", "eu", "t"), ("a", "us", "t"), ("b", "eu", "u")]
    lines = ['{"t":{"0":1}}', '{"t":{"0":2}}', '{"u":{"0":3}}', None, '{"t":{"0":4}}', '{"t":{"0":5}}']
    found = [(one.source, one.region, one.reader, one.ends[0]) for one in positions(lines, feeds)]
    assert found == [("a", "eu", 0, 1), ("a", "us", 0, 2), ("b", "eu", 0, 3), ("a", "eu", 1, 4), ("a", "us", 1, 5)]


def test_a_partition_that_appears_later_begins_at_zero() -> None:
    other = place("a")._replace(partition=1)
    batches = [
        RecordedBatch(-1, {place("a"): 2}),
        RecordedBatch(0, {place("a"): 5}),
        RecordedBatch(1, {place("a"): 6, other: 3}),
    ]
    slices = exact_slices(batches, [])
    assert slices[0].source("a").offsets == (OffsetRange("eu", "a", 0, 2, 5),)
    assert slices[1].source("a").offsets == (OffsetRange("eu", "a", 0, 5, 6), OffsetRange("eu", "a", 1, 0, 3))


def test_what_is_not_recorded_is_refused() -> None:
    with pytest.raises(PlanError, match=r"goes back from offset 9 to 4"):
        exact_slices([RecordedBatch(2, {place("a"): 9}), RecordedBatch(3, {place("a"): 4})], [])
    with pytest.raises(PlanError, match="between 0 and 2"):
        batches_to_replay([RecordedBatch(0, {place("a"): 1}), RecordedBatch(2, {place("a"): 3})], {}, None)
    begun = [RecordedBatch(7, {place("a"): 5}), RecordedBatch(8, {place("a"): 9})]
    with pytest.raises(PlanError, match="records begin with batch 7"):
        batches_to_replay(begun, {place("a"): Needed(4, 6)}, None)
    assert batches_to_replay(begun, {place("a"): Needed(5, 6)}, None) == begun


def test_every_recorded_batch_is_read_once() -> None:
    """The ranges of a reader follow each other."""
    ranges: dict[int, list[tuple[int, int]]] = defaultdict(list)
    batches = [RecordedBatch(n, {place("a"): n * n, place("a")._replace(partition=3): n}) for n in range(9)]
    for part in exact_slices(batches, []):
        for one in part.sources["a"].offsets:
            ranges[one.partition].append((one.start, one.end))
    assert ranges[0] == [(n * n, (n + 1) ** 2) for n in range(8)]
    assert ranges[3] == [(n, n + 1) for n in range(8)]
