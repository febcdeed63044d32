"""Time ranges in join conditions: "r - l lies between lo and hi", from comparisons with constant intervals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from rekappa.spark.plans.times import Times, duration, read
from rekappa.spark.plans.tree import Expression, _expressions

Key = tuple[int, int | None]
"""An attribute, or one field of a window attribute."""

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
class Term:
    """An attribute's time plus a constant."""

    key: Key
    offset: timedelta


@dataclass(frozen=True, slots=True)
class TimeRange:
    """right - left lies in [low, high]."""

    left: Expression
    right: Expression
    low: timedelta
    high: timedelta


def time_range(condition: Expression, left: set[int], right: set[int], times: Times) -> TimeRange | None:
    """The range that the condition sets between one time of the left and one of the right; None if any side is open."""
    lows: dict[tuple[Key, Key], timedelta] = {}
    highs: dict[tuple[Key, Key], timedelta] = {}
    anchors: dict[Key, Expression] = {}
    for name, one, other in _comparisons(condition):
        first, second = _term(one, times, anchors), _term(other, times, anchors)
        if first is None or second is None:
            continue
        if first.key[0] in right and second.key[0] in left:
            name, first, second = _FLIPPED[name], second, first
        if first.key[0] not in left or second.key[0] not in right:
            continue
        pair = (first.key, second.key)
        # first + x <= second + y  means  second - first >= x - y
        bound = first.offset - second.offset
        if name in ("LessThanOrEqual", "LessThan", "EqualTo", "EqualNullSafe"):
            lows[pair] = max(lows.get(pair, bound), bound)
        if name in ("GreaterThanOrEqual", "GreaterThan", "EqualTo", "EqualNullSafe"):
            highs[pair] = min(highs.get(pair, bound), bound)
    for pair, low in lows.items():
        if pair in highs:
            return TimeRange(anchors[pair[0]], anchors[pair[1]], low, highs[pair])
    return None


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


def _term(expression: Expression, times: Times, anchors: dict[Key, Expression]) -> Term | None:
    while expression.name in _PASS and expression.children:
        expression = expression.children[0]
    if expression.name in ("TimestampAddInterval", "TimeAdd", "Add", "Subtract") and len(expression.children) == 2:
        base, by = _term(expression.children[0], times, anchors), duration(expression.children[1])
        if base is None or by is None:
            return None
        return Term(base.key, base.offset + (-by if expression.name == "Subtract" else by))
    key: Key | None = None
    if expression.name == "AttributeReference" and expression.id is not None:
        key = (expression.id, None)
    elif expression.name == "GetStructField" and expression.children[0].id is not None:
        key = (expression.children[0].id, expression.fields.get("ordinal"))
    if key is None or read(expression, times) is None:
        return None
    anchors[key] = expression
    return Term(key, timedelta())
