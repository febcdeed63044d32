"""Warm-up and drain: what is read is enough for every row of the window, shown by running small queries both ways.

Each query runs over all events, and over those ingested in the window widened by the derived margins; what falls
into the window must be the same. Events are late by less than the watermark's delay, and ahead of their ingestion by
at most the clock skew.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekappa.errors import PlanError
from rekappa.plan.margins import CUSTOM_MARGIN, derive, with_overrides
from rekappa.plan.shape import Operation, Operator, Reach, Shape, Span
from rekappa.timeline import Window

M = timedelta(minutes=1)
DELAY, AHEAD = 7, 4
Event = tuple[int, int, str]
"""Minute it happened, minutes it came late (less than none: before its time), and its source."""
Query = Callable[[list[Event]], set[tuple[int, ...]]]

events = st.lists(st.tuples(st.integers(-200, 200), st.integers(-AHEAD, DELAY - 1), st.sampled_from("ab")), max_size=60)


def stateless(rows: list[Event]) -> set[tuple[int, ...]]:
    return {(minute, rows.count((minute, late, source))) for minute, late, source in rows if source == "a"}


def tumbling(rows: list[Event]) -> set[tuple[int, ...]]:
    starts = {minute // 10 * 10 for minute, _, _ in rows}
    return {(start, sum(start <= minute < start + 10 for minute, _, _ in rows)) for start in starts}


def tumbling_by_end(rows: list[Event]) -> set[tuple[int, ...]]:
    return {(start + 10, count) for start, count in tumbling(rows)}


def sliding(rows: list[Event]) -> set[tuple[int, ...]]:
    starts = {minute // 5 * 5 - 5 * back for minute, _, _ in rows for back in range(4)}
    return {(start, count) for start in starts if (count := sum(start <= row[0] < start + 20 for row in rows))}


def left_join(rows: list[Event]) -> set[tuple[int, ...]]:
    rights = [minute for minute, _, source in rows if source == "b"]
    lefts = [minute for minute, _, source in rows if source == "a"]
    return {(left, sum(left - 3 <= right <= left + 10 for right in rights), lefts.count(left)) for left in lefts}


def chained(rows: list[Event]) -> set[tuple[int, ...]]:
    fives = {minute // 5 * 5 for minute, _, _ in rows}
    ends = [start + 5 - 1 for start in fives]
    return {(end // 30 * 30, sum(other // 30 == end // 30 for other in ends)) for end in ends}


def sessions_by_start(rows: list[Event]) -> set[tuple[int, ...]]:
    """The starts alone: they are final whatever the sessions' length."""
    minutes = sorted({minute for minute, _, _ in rows})
    return {(one,) for at, one in enumerate(minutes) if at == 0 or one - minutes[at - 1] >= 8}


def one(kind: Operation, before: int, after: int, **more: object) -> Shape:
    span = Span(Reach(before * M), Reach(after * M))
    return Shape("out", (Operator(kind),), span, DELAY * M, event_time="ts", **more)  # type: ignore[arg-type]


CASES = [
    (stateless, Shape("out", event_time="ts", delay=DELAY * M)),
    (tumbling, one(Operation.WINDOW, 0, 10)),
    (tumbling_by_end, one(Operation.WINDOW, 10, 0)),
    (sliding, one(Operation.WINDOW, 0, 20)),
    (left_join, one(Operation.JOIN, 3, 10)),
    (chained, one(Operation.WINDOW, 5, 30)),
    (sessions_by_start, one(Operation.SESSION, 8, 96)),
]


@pytest.mark.parametrize(("query", "shape"), CASES, ids=[case[0].__name__ for case in CASES])
@settings(max_examples=150, deadline=None)
@given(rows=events, start=st.integers(-60, 60), length=st.integers(1, 90))
def test_the_output_of_the_window_is_complete(
    query: Query, shape: Shape, rows: list[Event], start: int, length: int
) -> None:
    margins = derive([shape], lateness=0 * M, ahead=AHEAD * M)
    low, high = start - margins.warm_up // M, start + length + margins.drain // M
    read = [row for row in rows if low <= row[0] + row[1] < high]

    def in_window(made: set[tuple[int, ...]]) -> set[tuple[int, ...]]:
        return {row for row in made if start <= row[0] < start + length}

    assert in_window(query(read)) == in_window(query(rows))


def test_reasons_name_ranges_windows_and_the_watermark() -> None:
    span = Span(Reach(), Reach().plus(10 * M, "join range"))
    margins = derive([Shape("out", (Operator(Operation.JOIN),), span, 10 * M, event_time="ts")], 15 * M)
    assert margins.drain == 20 * M
    assert margins.drain_reason == "10m join range + 10m watermark"
    assert margins.warm_up == 0 * M
    assert margins.retention == 20 * M


def test_clocks_ahead_are_read_for_whatever_the_job_does_and_whatever_warm_up_was_told() -> None:
    plain = derive([Shape("out", event_time="ts")], 15 * M, ahead=M)
    assert (plain.warm_up, plain.warm_up_reason) == (M, "1m for clocks that are ahead")
    joined = derive([one(Operation.JOIN, 3, 10)], 0 * M, ahead=M)
    assert joined.warm_up == 4 * M
    told = with_overrides(joined, 0 * M, None)
    assert (told.warm_up, told.warm_up_reason) == (M, "1m for clocks that are ahead")
    assert with_overrides(joined, 9 * M, None).warm_up_reason == "9m as told + 1m for clocks that are ahead"


def test_a_time_that_leads_to_no_column_is_refused_unless_both_margins_are_told() -> None:
    margins = derive([Shape("out", span=None, event_time="ts")], 15 * M, ahead=M)
    for warm_up, drain in ((None, None), (M, None), (None, M)):
        with pytest.raises(PlanError, match=r"'out' \(ts\) can't be traced") as refused:
            with_overrides(margins, warm_up, drain)
        assert "--warm-up and --drain" in str(refused.value.hint)
    assert with_overrides(margins, M, 5 * M).warm_up == 2 * M


def test_without_a_watermark_the_allowed_lateness_is_drained() -> None:
    margins = derive([Shape("out", event_time="ts")], 15 * M)
    assert (margins.warm_up, margins.drain) == (0 * M, 15 * M)
    assert "max_misalignment" in margins.drain_reason


def test_a_sink_without_event_time_needs_no_margins() -> None:
    margins = derive([Shape("out", span=None)], 15 * M, ahead=M)
    assert (margins.warm_up, margins.drain, margins.timed) == (0 * M, 0 * M, False)


def test_custom_state_gets_a_default_and_a_note() -> None:
    margins = derive([Shape("out", (Operator(Operation.CUSTOM),), None, M, event_time="ts")], 15 * M)
    assert margins.warm_up == CUSTOM_MARGIN
    assert margins.drain == CUSTOM_MARGIN + M
    assert margins.retention is None
    assert "--warm-up" in margins.notes[0]


def test_open_sessions_are_said_to_be_not_final() -> None:
    span = Span(Reach(5 * M), Reach(60 * M, open=True))
    margins = derive([Shape("out", (Operator(Operation.SESSION),), span, M, event_time="ts")], 15 * M)
    assert "not final" in margins.notes[0]


def test_a_job_takes_the_widest_margins_of_its_outputs() -> None:
    margins = derive([one(Operation.WINDOW, 10, 0), one(Operation.WINDOW, 0, 20)], 0 * M)
    assert (margins.warm_up, margins.drain) == (10 * M, 27 * M)


def test_the_user_wins_and_is_told_when_that_is_short() -> None:
    margins = with_overrides(derive([one(Operation.JOIN, 3, 10)], 0 * M), M, 60 * M)
    assert (margins.warm_up, margins.drain) == (M, 60 * M)
    assert len(margins.notes) == 1
    assert "shorter than the derived 3m" in margins.notes[0]


def test_a_window_widened_by_margins_is_what_is_read() -> None:
    window = Window(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC))
    assert window.widened(3 * M, 17 * M).length == timedelta(days=1, minutes=20)
