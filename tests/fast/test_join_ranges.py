"""The time range of a join, however its bounds are written: on conditions made by hand, without Spark."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from rekappa.plan.shape import Anchor, Span
from rekappa.spark.plans.joins import joined
from rekappa.spark.plans.ranges import time_range
from rekappa.spark.plans.times import Moment, Spread, Times, from_source, spread
from rekappa.spark.plans.tree import Expression

MICRO = timedelta(microseconds=1)
shifts = st.integers(-10_000, 10_000)


def column(key: int) -> Expression:
    return Expression("AttributeReference", {"exprId": {"id": key}})


def later(of: Expression, micros: int) -> Expression:
    return Expression("TimestampAddInterval", {}, (of, Expression("Literal", {"value": micros, "dataType": "long"})))


def part(of: Expression, ordinal: int) -> Expression:
    return Expression("GetStructField", {"ordinal": ordinal}, (of,))


def at_least(one: Expression, other: Expression, flipped: bool) -> Expression:
    return (
        Expression("LessThanOrEqual", {}, (other, one))
        if flipped
        else Expression("GreaterThanOrEqual", {}, (one, other))
    )


def both(one: Expression, other: Expression) -> Expression:
    return Expression("And", {}, (one, other))


def sides() -> tuple[Times, Times]:
    left, right = from_source("a", "ts", "timestamp"), from_source("b", "ts", "timestamp")
    assert left is not None
    assert right is not None
    return {1: left}, {2: right}


@given(shifts, st.integers(0, 10_000), shifts, shifts, st.booleans(), st.booleans())
def test_constants_may_stand_on_either_side(low: int, width: int, x: int, y: int, flip: bool, other: bool) -> None:
    left, right = sides()
    # right - left >= low, right - left <= low + width, with the same amounts added to both sides
    lower = at_least(later(column(2), x), later(column(1), x + low), flip)
    upper = at_least(later(column(1), y + low + width), later(column(2), y), other)
    found = time_range(both(lower, upper), left, right)
    assert found is not None
    assert (found.low, found.high) == (low * MICRO, (low + width) * MICRO)
    times = joined(found, left, right)
    span = times[1].span if isinstance(times[1], Moment) else Span()
    assert (span.before.length, span.after.length) == (max(-low, 0) * MICRO, max(low + width, 0) * MICRO)
    assert span.anchors == {Anchor("a", "ts"), Anchor("b", "ts")}


@given(st.integers(1, 10_000), shifts, shifts)
def test_the_start_and_the_end_of_a_window_bound_the_same_time(length: int, early: int, late: int) -> None:
    left, right = sides()
    under = left[1]
    assert isinstance(under, Moment)
    window = spread(under.span, under.span, length * MICRO, session=False)
    lower = at_least(column(2), later(part(column(1), 0), early), False)
    upper = at_least(later(part(column(1), 1), late), column(2), False)
    found = time_range(both(lower, upper), {1: window}, right)
    assert found is not None
    assert (found.low, found.high) == (early * MICRO, (length + late) * MICRO)
    kept = joined(found, {1: window}, right)[1]
    assert isinstance(kept, Spread)
    assert kept.end.offset - kept.start.offset == length * MICRO


@given(shifts, st.booleans())
def test_one_bound_alone_is_no_range(low: int, flip: bool) -> None:
    left, right = sides()
    bound = at_least(column(2), later(column(1), low), flip)
    assert time_range(bound, left, right) is None
    assert time_range(Expression("Or", {}, (bound, bound)), left, right) is None
    session = spread(Span(), Span(), timedelta(minutes=5), session=True)
    ends = both(at_least(column(2), part(column(1), 0), flip), at_least(part(column(1), 1), column(2), flip))
    assert time_range(ends, {1: session}, right) is None


def test_times_in_structs_are_known_by_their_path() -> None:
    kind = {"type": "struct", "fields": [{"name": "x", "type": "long"}, {"name": "ts", "type": "timestamp"}]}
    struct = from_source("a", "body", kind)
    _, right = sides()
    assert struct is not None
    inner = part(column(1), 1)
    condition = both(at_least(column(2), inner, False), at_least(later(inner, 7), column(2), False))
    found = time_range(condition, {1: struct}, right)
    assert found is not None
    assert found.left.span.anchors == {Anchor("a", "body.ts")}
    assert (found.low, found.high) == (timedelta(), 7 * MICRO)
