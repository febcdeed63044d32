"""Time ranges in join conditions: "r - l lies between lo and hi", from comparisons with constant intervals."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta

from rekappa.plan.shape import Anchor
from rekappa.spark.plans.times import Base, Moment, Nested, Spread, Time, Times, duration, read
from rekappa.spark.plans.tree import Expression, _expressions

_FLIPPED = {
    "GreaterThanOrEqual": "LessThanOrEqual",
    "GreaterThan": "LessThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "LessThan": "GreaterThan",
    "EqualTo": "EqualTo",
    "EqualNullSafe": "EqualNullSafe",
}
_PASS = ("Cast", "KnownNullable", "KnownNotNull", "DatetimeSub")


@dataclass(frozen=True, slots=True)
class TimeRange:
    """right - left lies in [low, high]."""

    left: Moment
    right: Moment
    low: timedelta
    high: timedelta


def time_range(
    condition: Expression, left: Times, right: Times, watermarked: Collection[Anchor] = ()
) -> TimeRange | None:
    """The range that the condition sets between one time of the left and one of the right; None if any side is open.

    Bounds on the start and on the end of one window are bounds on the same time: the two are a constant apart. Of
    several ranges, one between times that have watermarks goes before others (days that are equal, say), then the
    narrowest.
    """
    both = left | right
    ours, theirs = _numbers(left), _numbers(right)
    lows: dict[tuple[Base, Base], timedelta] = {}
    highs: dict[tuple[Base, Base], timedelta] = {}
    ends: dict[Base, Moment] = {}
    for name, one, other in _comparisons(condition):
        first, second = (_moment(read(side, both)) for side in (one, other))
        if first is None or second is None:
            continue
        if first.base[0] in theirs and second.base[0] in ours:
            name, first, second = _FLIPPED[name], second, first
        if first.base[0] not in ours or second.base[0] not in theirs:
            continue
        for found in (first, second):
            ends.setdefault(found.base, found.shifted(-found.offset))
        pair = (first.base, second.base)
        # first + x <= second + y  means  second - first >= x - y
        bound = first.offset - second.offset
        if name in ("LessThanOrEqual", "LessThan", "EqualTo", "EqualNullSafe"):
            lows[pair] = max(lows.get(pair, bound), bound)
        if name in ("GreaterThanOrEqual", "GreaterThan", "EqualTo", "EqualNullSafe"):
            highs[pair] = min(highs.get(pair, bound), bound)
    closed = [pair for pair in lows if pair in highs]
    if not closed:
        return None

    def timed(pair: tuple[Base, Base]) -> bool:
        return all(ends[base].span.anchors <= set(watermarked) for base in pair)

    pair = min(closed, key=lambda one: (not timed(one), highs[one] - lows[one]))
    return TimeRange(ends[pair[0]], ends[pair[1]], lows[pair], highs[pair])


def _numbers(times: Times) -> set[int]:
    found: set[int] = set()
    for one in times.values():
        if isinstance(one, Moment):
            found.add(one.base[0])
        elif isinstance(one, Nested):
            found.add(one.number)
        else:
            found |= {one.start.base[0], one.end.base[0]}
    return found


def _moment(found: Time | None) -> Moment | None:
    """Windows that are compared whole are compared by their starts."""
    if isinstance(found, Spread) and not found.session:
        return found.start
    return found if isinstance(found, Moment) else None


def _comparisons(condition: Expression) -> Iterator[tuple[str, Expression, Expression]]:
    """Every comparison that must hold. Branches of OR and NOT promise nothing and are left out."""
    if condition.name == "And":
        for child in condition.children:
            yield from _comparisons(child)
    elif condition.name == "Between":
        value, low, high = (_expressions(condition.fields[part])[0] for part in ("input", "lower", "upper"))
        yield "GreaterThanOrEqual", value, low
        yield "LessThanOrEqual", value, high
    elif condition.name in _FLIPPED and len(condition.children) == 2:
        one, other = condition.children
        yield from _difference(condition.name, one, other)
        yield condition.name, one, other


def _difference(name: str, one: Expression, other: Expression) -> Iterator[tuple[str, Expression, Expression]]:
    """a - b <= interval, written as a <= b + interval."""
    for left, right, operator in ((one, other, name), (other, one, _FLIPPED[name])):
        while left.name in _PASS and left.children:
            left = left.children[0]
        if left.name == "SubtractTimestamps" and duration(right) is not None:
            yield operator, left.children[0], Expression("TimestampAddInterval", {}, (left.children[1], right))
