"""A processor driven key by key does what Spark's micro-batches would do, key after key in every batch."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from rekappa.errors import RunError
from rekappa.replay.custom.batches import BATCH, Columns, first_in_arrow, frames_in_pandas, rows_in_arrow
from rekappa.replay.custom.duplicates import first_rows
from rekappa.replay.custom.function import Applying
from rekappa.replay.custom.handle import KeyHandle
from rekappa.replay.custom.processor import Processing
from rekappa.replay.custom.rows import row_maker
from rekappa.replay.custom.values import through

OUT = StructType().add("key", "long").add("what", "string").add("at", "long").add(BATCH, "integer")
COUNT = StructType().add("n", "long")


class Restless:
    """Counts events and sets timers: one for each event, and each that fires may set the next."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", COUNT)
        self.seen = handle.getListState("seen", COUNT)
        self.by = handle.getMapState("by", COUNT, COUNT)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        for row in rows:
            (before,) = self.count.get() or (0,)
            self.count.update((before + 1,))
            self.seen.appendValue((row.at,))
            self.by.updateValue((row.at % 3,), (row.at,))
            self.handle.registerTimer(row.at + 20)
            if row.at % 5 == 0:
                self.handle.deleteTimer(row.at + 15)
        held = sum(value for (value,) in self.seen.get()) + sum(value for (value,) in self.by.values())
        yield Row(key=key[0], what=f"{self.count.get()}/{held}", at=timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        moment = expiredTimerInfo.getExpiryTimeInMs()
        yield Row(
            key=key[0],
            what=f"fired {moment} {list(self.handle.listTimers())}",
            at=timerValues.getCurrentWatermarkInMs(),
        )
        if moment % 2:
            self.handle.registerTimer(moment + 7)
            self.handle.deleteTimer(moment + 1)
        if moment % 7 == 0:
            self.count.clear()
            self.seen.clear()
            self.by.clear()

    def close(self) -> None:
        pass


Event = tuple[int, int, int]
"""Batch, key, time."""


def in_micro_batches(events: list[Event], marks: list[int]) -> Counter[tuple[Any, ...]]:
    """As Spark does it: batch by batch, first the rows of every key, then every timer that was due before any fired."""
    processor, handle = Restless(), KeyHandle()
    processor.init(handle)
    states: dict[int, tuple[dict[str, Any], set[int]]] = {}
    found: Counter[tuple[Any, ...]] = Counter()

    class Times:
        def __init__(self, watermark: int) -> None:
            self.getCurrentWatermarkInMs = lambda: watermark

    class Expired:
        def __init__(self, moment: int) -> None:
            self.getExpiryTimeInMs = lambda: moment

    for batch, mark in enumerate(marks):
        for key in sorted({key for at, key, _ in events if at == batch}):
            handle.variables, handle.timers = states.setdefault(key, ({}, set()))
            rows = [Row(key=key, at=moment) for at, own, moment in events if (at, own) == (batch, key)]
            found.update((*row, batch) for row in processor.handleInputRows((key,), iter(rows), Times(mark)))
        due = sorted((moment, key) for key, (_, timers) in states.items() for moment in timers if moment <= mark)
        for moment, key in due:
            handle.variables, handle.timers = states[key]
            found.update((*row, batch) for row in processor.handleExpiredTimer((key,), Times(mark), Expired(moment)))
            states[key][1].discard(moment)
    return found


def sorted_batches(events: list[Event], size: int) -> Iterator[pa.RecordBatch]:
    ordered = sorted(enumerate(events), key=lambda one: (one[1][1], one[1][0], one[0]))
    columns = ["key", "row_key", "row_at", "slice", "arrival"]
    for start in range(0, len(ordered), size):
        part = ordered[start : start + size]
        values = [(key, key, moment, at, place) for place, (at, key, moment) in part]
        arrays = [pa.array(one, pa.int64()) for one in zip(*values, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=columns)


histories = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3), st.integers(0, 60)), max_size=25)
rising = st.lists(st.integers(0, 90), min_size=8, max_size=8).map(sorted)


@settings(max_examples=60, deadline=None)
@given(histories, rising, st.integers(1, 6))
def test_key_by_key_equals_batch_by_batch(events: list[Event], marks: list[int], size: int) -> None:
    def make() -> Processing:
        return Processing(Restless(), "EventTime", ("key",))

    run = rows_in_arrow(make, Columns(1, ("key", "at")), marks, OUT)
    made = [tuple(row.values()) for batch in run(sorted_batches(events, size)) for row in batch.to_pylist()]
    assert Counter(made) == in_micro_batches(events, marks)


def test_a_key_with_a_million_events_streams_through() -> None:
    """No more than two batches are alive at a time."""
    alive: list[int] = []
    most = [0]

    class Counting(Restless):
        def init(self, handle: Any) -> None:
            self.count = handle.getValueState("count", COUNT)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            for _ in rows:
                alive[0] -= 1
            self.count.update((1,))
            yield Row(key=key[0], what="done", at=0)

    alive.append(0)

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(100):
            alive[0] += 10_000
            most[0] = max(most[0], alive[0])
            one = pa.array(np.ones(10_000, dtype=np.int64))
            yield pa.RecordBatch.from_arrays(
                [one, one, one, pa.array([number // 50] * 10_000), one], names=list("abcde")
            )

    run = rows_in_arrow(lambda: Processing(Counting(), "None", ("key",)), Columns(1, ("key", "at")), [0, 0], OUT)
    assert sum(batch.num_rows for batch in run(batches())) == 2
    assert most[0] <= 20_000


def test_initial_state_comes_before_the_first_rows() -> None:
    class Starting(Restless):
        def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
            self.count.update((initialState.n,))
            self.handle.registerTimer(5)

    keys, slices = [1, 1, 2], [-1, 0, -1]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(one) for one in (keys, [None, 1, None], [None, 9, None], [100, None, 50], slices, [0, 0, 0])],
        names=list("abcdef"),
    )
    columns = Columns(1, ("key", "at"), ("n",))
    run = rows_in_arrow(lambda: Processing(Starting(), "EventTime", ("key",)), columns, [0, 10], OUT)
    made = [(row["key"], row["what"], row[BATCH]) for out in run([batch]) for row in out.to_pylist()]
    assert made == [(1, "(101,)/18", 0), (1, "fired 5 [5, 29]", 1), (2, "fired 5 [5]", 1)]


def test_keys_that_are_null_or_not_a_number_are_one_key_each() -> None:
    keys = pa.array([None, None, 1.0, float("nan"), float("nan")], pa.float64())
    one = pa.array([1] * 5)
    batch = pa.RecordBatch.from_arrays([keys, one, one, pa.array([0, 1, 0, 0, 1]), one], names=list("abcde"))

    class Keys(Restless):
        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            (before,) = self.count.get() or (0,)
            self.count.update((before + 1,))
            yield Row(key=0, what=f"{key[0]} {before}", at=0)

    run = rows_in_arrow(lambda: Processing(Keys(), "None", ("key",)), Columns(1, ("key", "at")), [0, 0], OUT)
    whats = [row["what"] for out in run([batch]) for row in out.to_pylist()]
    assert whats == ["None 0", "None 1", "1.0 0", "nan 0", "nan 1"]


def test_pandas_frames_are_cut_by_key_and_slice() -> None:
    class Summing:
        def init(self, handle: Any) -> None:
            self.total = handle.getValueState("total", COUNT)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            (total,) = self.total.get() or (0,)
            total += int(sum(frame["at"].sum() for frame in rows))
            self.total.update((np.int64(total),))
            yield pd.DataFrame({"key": [key[0]], "total": [total]})

        def close(self) -> None:
            pass

    frame = pd.DataFrame(
        {"k": [1, 1, 1, 2, 2], "key": [1, 1, 1, 2, 2], "at": [1, 2, 3, 4, 5], "s": [0, 0, 2, 0, 2], "a": range(5)}
    )
    run = frames_in_pandas(
        lambda: Processing(Summing(), "None", ("key",), pandas=True), Columns(1, ("key", "at")), [0, 0, 0]
    )
    made = pd.concat(run([frame.iloc[:2], frame.iloc[2:4], frame.iloc[4:]]))
    assert made[["key", "total", BATCH]].to_numpy().tolist() == [[1, 3, 0], [1, 6, 2], [2, 4, 0], [2, 9, 2]]


def test_whole_numbers_of_a_key_without_nulls_stay_whole() -> None:
    """A group's column is of floating point only if the group itself has a null."""
    rows = [
        (0, 0, 2**60 + 1, 0, 0, True, True, False),
        (0, 0, 0, 0, 1, True, True, True),
        (0, 0, 7, 0, 2, False, False, False),
    ]
    frame = pd.DataFrame(rows, columns=["k", "key", "n", "slice", "arrival", "no_k", "no_key", "no_n"])
    seen: list[Any] = []

    def function(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
        for piece in frames:
            seen.append((str(key[0]), str(piece["key"].dtype), str(piece["n"].dtype), piece["n"].tolist()))
        return iter(())

    make = lambda: Applying(function, COUNT, "NoTimeout", ["key", "n"], watermarked=False)  # noqa: E731
    run = frames_in_pandas(make, Columns(1, ("key", "n"), masked=(0, 1, 2)), [0])
    assert list(run([frame.iloc[:1], frame.iloc[1:]])) == []
    assert seen[0] == ("nan", "float64", "int64", [2**60 + 1])
    assert seen[1][:3] == ("nan", "float64", "float64")
    assert seen[2] == ("0", "int64", "int64", [7]), "a null key is not the key 0"


def test_what_is_changed_before_a_list_is_read_is_seen() -> None:
    handle = KeyHandle()
    listed = handle.getListState("l", COUNT)
    listed.put([(1,), (2,)])
    before = listed.get()
    listed.appendValue((3,))
    assert next(before) == (1,)
    listed.clear()
    assert list(before) == [(2,), (3,)], "read at once, when the first was asked for"


def applying(function: Any, timeout: str = "EventTimeTimeout") -> list[list[Any]]:
    rows = [(1, 1, 10, 0, 0), (1, 1, 11, 1, 1), (2, 2, 12, 0, 2)]
    frame = pd.DataFrame(rows, columns=["k", "key", "at", "slice", "arrival"])
    make = lambda: Applying(function, COUNT, timeout, ["key", "at"], watermarked=True)  # noqa: E731
    run = frames_in_pandas(make, Columns(1, ("key", "at")), [0, 40, 50, 51, 99])
    return [row for made in run([frame]) for row in made.to_numpy().tolist()]


def test_a_timeout_fires_once_the_watermark_is_past_it_and_is_forgotten_when_not_set_again() -> None:
    def function(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
        if state.hasTimedOut:
            assert [list(frame.columns) for frame in frames] == [["key", "at"]]
            yield pd.DataFrame({"key": [key[0]], "n": [-state.get[0]]})
            state.remove()
            return
        n = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
        state.update((n,))
        if n == 1:
            state.setTimeoutTimestamp(50)
        yield pd.DataFrame({"key": [key[0]], "n": [n]})

    # The timeout of key 1 was set in batch 0 and is gone since batch 1; that of key 2 is past in batch 3.
    assert applying(function) == [[1, 1, 0], [1, 2, 1], [2, 1, 0], [2, -1, 3]]


def test_a_call_that_changes_nothing_leaves_state_and_timeout_alone() -> None:
    calls: list[tuple[int, bool]] = []

    def function(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
        calls.append((int(key[0]), state.hasTimedOut))
        if not state.exists and not state.hasTimedOut:
            state.update((1,))
            state.setTimeoutTimestamp(45)
        return iter(())

    applying(function)
    # Timed out, and neither removed nor updated: it times out again in every batch.
    assert calls == [
        (1, False),
        (1, False),
        (1, True),
        (1, True),
        (1, True),
        (2, False),
        (2, True),
        (2, True),
        (2, True),
    ]


@settings(max_examples=60, deadline=None)
@given(histories, rising, st.integers(0, 30))
def test_duplicates_within_the_watermark_equal_batch_by_batch(
    events: list[Event], marks: list[int], lasts: int
) -> None:
    ordered = sorted(events, key=lambda one: (one[1], one[0]))
    passed = list(first_rows(((key, batch, at * 1000) for batch, key, at in ordered), marks, lasts * 1000))
    known: dict[int, int] = {}
    expected: list[tuple[Event, bool]] = []
    for batch, mark in enumerate(marks):
        for event in (one for one in ordered if one[0] == batch):
            passes = event[1] not in known
            if passes:
                known[event[1]] = event[2] + lasts
            expected.append((event, passes))
        known = {key: until for key, until in known.items() if mark < until}
    assert Counter(zip(ordered, passed, strict=True)) == Counter(expected)


def test_first_rows_keep_all_their_columns() -> None:
    batches = list(sorted_batches([(0, 1, 5), (1, 1, 6), (0, 2, 7)], 2))
    run = first_in_arrow(Columns(1, ("key", "at")), None, [0, 0], None)
    assert [row for batch in run(batches) for row in batch.to_pylist()] == [
        {"key": 1, "at": 5, BATCH: 0},
        {"key": 2, "at": 7, BATCH: 0},
    ]


def test_values_come_back_as_spark_gives_them_back() -> None:
    schema = (
        StructType()
        .add("i", IntegerType())
        .add("l", LongType())
        .add("f", "float")
        .add("s", StringType())
        .add("d", DecimalType(6, 2))
        .add("a", ArrayType(IntegerType()))
        .add("m", MapType(StringType(), LongType()))
        .add("t", TimestampType())
        .add("day", "date")
        .add("b", BinaryType())
        .add("n", StructType().add("x", "integer"))
    )
    moment = datetime(2026, 11, 1, 12, tzinfo=UTC)
    stored = through(schema)(
        (
            2**31,
            np.int64(7),
            1.1,
            5,
            Decimal("1.005"),
            (1, None),
            {"a": 1},
            moment,
            date(2026, 1, 2),
            bytearray(b"x"),
            (3,),
        )
    )
    assert stored[:3] == (-(2**31), 7, pytest.approx(1.1, rel=1e-6))
    assert stored[2] != 1.1
    assert stored[3:7] == ("5", Decimal("1.01"), [1, None], {"a": 1})
    assert stored[7].tzinfo is None
    assert stored[7].timestamp() == moment.timestamp()
    assert stored[8:] == (date(2026, 1, 2), b"x", Row(x=3))
    # Another type than declared is null.
    assert through(schema)(("1", 1.5, 1, None, 1.5, 3, [], None, None, 4, None))[:7] == (None,) * 7


def test_what_spark_or_the_clock_forbids_is_refused() -> None:
    handle = KeyHandle({"n BIGINT": COUNT}, timed=False)
    assert handle.getValueState("v", "n BIGINT").get() is None
    with pytest.raises(RunError, match="expires by the clock"):
        handle.getListState("l", COUNT, 1000)
    with pytest.raises(ValueError, match="empty list"):
        handle.getListState("l", COUNT).put([])
    with pytest.raises(RunError, match="time mode is None"):
        handle.registerTimer(5)


def test_rows_answer_as_sparks_own() -> None:
    names = ("at", "count", "at", "__metadata__", "asDict")
    ours, sparks = row_maker(names)((1, 2, 3, None, 5)), Row(*names)(1, 2, 3, None, 5)
    assert (ours, hash(ours), repr(ours), ours.asDict()) == (sparks, hash(sparks), repr(sparks), sparks.asDict())
    assert isinstance(ours, Row)
    assert (ours.at, ours["at"], ours["count"], "count" in ours) == (1, 1, 2, True)
    assert pickle.loads(pickle.dumps(ours)) == sparks
    for name in ("nothing", "__metadata__"):
        with pytest.raises(AttributeError):
            getattr(ours, name)
    assert callable(ours.count), "Python's own, as in a Row"


def test_columns_that_are_always_null_are_not_sent_but_there() -> None:
    class Telling(Restless):
        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            yield from (Row(key=key[0], what=repr(row), at=0) for row in rows)

    batch = pa.RecordBatch.from_arrays([pa.array([one]) for one in (4, 7, 0, 0)], names=list("abcd"))
    columns = Columns(1, ("before", "at", "after"), empty=frozenset({"before", "after"}))
    run = rows_in_arrow(lambda: Processing(Telling(), "None", ("key",)), columns, [0], OUT)
    (row,) = [row for out in run([batch]) for row in out.to_pylist()]
    assert row["what"] == repr(Row(before=None, at=7, after=None))
