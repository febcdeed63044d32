"""Where the times in a plan come from: each attribute that holds a time, and the span of inputs behind it.

Reading is symbolic. Every time-valued expression is one anchored time plus an offset, the start or end of a
window over one, or unknown. Unknown is an answer too: margins are then chosen wider.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import reduce
from itertools import count
from typing import Any

from rekappa.plan.shape import ZERO, Anchor, Reach, Span
from rekappa.spark.plans.tree import Expression
from rekappa.timeline import parse_duration

SESSION_GAPS = 12
"""A session has no greatest length: margins are made for sessions of up to this many gaps, and say so."""

_PASS = {
    "PreciseTimestampConversion",
    "KnownNullable",
    "KnownNotNull",
    "Alias",
    "CommonExpressionDef",
    "DatetimeSub",
    "ParseToTimestamp",
    "ParseToTimestampNTZ",
    "ParseToTimestampLTZ",
}
_TIME_TYPES = ("timestamp", "timestamp_ntz", "date")
_DAY = timedelta(days=1)
_TRUNCATIONS = {
    "MICROSECOND": ZERO,
    "MILLISECOND": timedelta(milliseconds=1),
    "SECOND": timedelta(seconds=1),
    "MINUTE": timedelta(minutes=1),
    "HOUR": timedelta(hours=1),
    **dict.fromkeys(("DAY", "DD"), _DAY),
    "WEEK": 7 * _DAY,
    **dict.fromkeys(("MONTH", "MON", "MM"), 31 * _DAY),
    "QUARTER": 92 * _DAY,
    **dict.fromkeys(("YEAR", "YYYY", "YY"), 366 * _DAY),
}
_UNITS = {unit: length for unit, length in _TRUNCATIONS.items() if length <= _DAY * 7} | {
    "MICROSECOND": timedelta(microseconds=1)
}
_CHOICES: dict[str, Callable[[tuple[Expression, ...]], tuple[Expression, ...]]] = {
    **dict.fromkeys(("Coalesce", "Least", "Greatest"), lambda children: children),
    "If": lambda children: children[1:],
    # Conditions and values by turns, and perhaps a value for all else.
    "CaseWhen": lambda children: children[1::2] + (children[-1:] if len(children) % 2 else ()),
}
"""Expressions whose value is one of some others'."""
_numbers = count()

Base = tuple[int, str]
"""The number of a time, or the number of a struct and the path to a time in it."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time: `offset` after the time known as `base`. Two moments of one row with one base are a constant apart."""

    span: Span
    base: Base
    offset: timedelta = ZERO

    def shifted(self, by: timedelta) -> Moment:
        return Moment(shifted(self.span, by), self.base, self.offset + by)


@dataclass(frozen=True, slots=True)
class Spread:
    """The start and the end of a window column; `length` is None for a gap that is computed per row."""

    start: Moment
    end: Moment
    length: timedelta | None
    session: bool


@dataclass(frozen=True, slots=True)
class Nested:
    """A struct of a source, whose fields may hold times: `path` leads to it, `fields` are Spark's JSON of its type.

    `reach` is what is behind any time in it, but for the anchor.
    """

    source: str
    path: str
    fields: tuple[Any, ...]
    number: int
    reach: Span = field(default_factory=Span)

    def inner(self, ordinal: int) -> Moment | Nested | None:
        """The time or struct in one of its fields."""
        one = self.fields[ordinal]
        found = from_source(self.source, f"{self.path}.{one['name']}", one["type"], self.number)
        if isinstance(found, Nested):
            return replace(found, reach=self.reach)
        if found is None or self.reach == Span():
            return found
        span = found.span.covering(self.reach)
        return replace(found, span=replace(span, known=span.known and found.span.anchors <= self.reach.anchors))


Time = Moment | Spread | Nested
Times = dict[int, Time]


def moment(span: Span) -> Moment:
    """A time that is no constant apart from any other."""
    return Moment(span, (next(_numbers), ""))


def from_source(source: str, path: str, kind: Any, number: int | None = None) -> Moment | Nested | None:
    """The time or struct in a source's column, by Spark's JSON of its type; `number` is the struct's around it."""
    known = next(_numbers) if number is None else number
    if isinstance(kind, str) and kind in _TIME_TYPES:
        return Moment(Span(anchors=frozenset({Anchor(source, path)})), (known, path))
    if isinstance(kind, dict) and kind.get("type") == "struct":
        return Nested(source, path, tuple(kind["fields"]), known)
    return None


def shifted(span: Span, by: timedelta) -> Span:
    """The span of t + by, given that of t: what lies `after` t lies less far after t + by."""
    return replace(
        span,
        before=Reach(span.before.length + by, span.before.why, span.before.open),
        after=Reach(span.after.length - by, span.after.why, span.after.open),
    )


def covering(one: Time, other: Time) -> Time:
    """What is behind either of two times, or two windows, as a time of its own; of two structs the first."""
    if isinstance(one, Moment) and isinstance(other, Moment):
        return moment(one.span.covering(other.span))
    if isinstance(one, Spread) and isinstance(other, Spread):
        start, end = one.start.span.covering(other.start.span), one.end.span.covering(other.end.span)
        return spread(start, end, one.length if one.length == other.length else None, one.session or other.session)
    return replace(one, number=next(_numbers)) if isinstance(one, Nested) else one


def spread(start: Span, end: Span, length: timedelta | None, session: bool) -> Spread:
    """A window's two times: a constant apart, unless it is a session."""
    first = moment(start)
    fixed = length is not None and not session
    return Spread(first, Moment(end, first.base, length or ZERO) if fixed else moment(end), length, session)


def read(expression: Expression, times: Times) -> Time | None:
    """What is behind an expression that holds a time, a window or a struct with times; None for anything else."""
    name, children = expression.name, expression.children
    if name == "AttributeReference":
        return times.get(expression.id if expression.id is not None else -1)
    if name == "CreateNamedStruct":
        return read_window(expression, times)
    if name == "GetStructField":
        return _field(expression, times)
    if name == "ParseToDate" or (name == "Cast" and expression.fields.get("dataType") == "date"):
        return _truncated(read(children[0], times), "DAY")
    if name == "Cast" and expression.fields.get("dataType") not in _TIME_TYPES:
        return None
    if (name in _PASS or name == "Cast") and children:
        return read(children[0], times)
    if name in ("TimestampAddInterval", "TimeAdd", "Add", "Subtract", "DateAdd", "DateSub") and len(children) == 2:
        base, by = read(children[0], times), _days(children[1]) if name.startswith("Date") else duration(children[1])
        if isinstance(base, Moment) and by is not None:
            return base.shifted(-by if name in ("Subtract", "DateSub") else by)
    if name == "TimestampAdd" and len(children) == 2:
        base, times_as_many = read(children[1], times), _whole(children[0])
        unit = _UNITS.get(str(expression.fields.get("unit", "")).upper())
        if isinstance(base, Moment) and times_as_many is not None and unit is not None:
            return base.shifted(times_as_many * unit)
    if name in _CHOICES:
        return _chosen(_CHOICES[name](children), times)
    if name == "TruncTimestamp" and len(children) == 2:
        return _truncated(read(children[1], times), str(children[0].fields.get("value", "")).upper())
    if name == "TruncDate" and len(children) == 2:
        return _truncated(read(children[0], times), str(children[1].fields.get("value", "")).upper())
    return None


def _truncated(found: Time | None, unit: str) -> Moment | None:
    if not isinstance(found, Moment) or unit not in _TRUNCATIONS:
        return None
    later = found.span.after.plus(_TRUNCATIONS[unit], f"truncation to {unit}")
    return moment(replace(found.span, after=later))


def _chosen(values: Sequence[Expression], times: Times) -> Moment | None:
    """One of several times, whichever it is."""
    found = [read(value, times) for value in values if not _is_null(value)]
    moments = [one for one in found if isinstance(one, Moment)]
    if not moments or len(moments) < len(found):
        return None
    return moment(reduce(Span.covering, (one.span for one in moments)))


def _is_null(expression: Expression) -> bool:
    while expression.name == "Cast" and expression.children:
        expression = expression.children[0]
    return expression.name == "Literal" and expression.fields.get("value") is None


def _field(expression: Expression, times: Times) -> Time | None:
    within = read(expression.children[0], times)
    if isinstance(within, Spread):
        return within.start if expression.fields.get("ordinal") == 0 else within.end
    if isinstance(within, Nested):
        return within.inner(int(expression.fields["ordinal"]))
    return None


def read_window(struct: Expression, times: Times) -> Spread | None:
    """The window that Spark's analyser made of `window` or `session_window`: a struct of start and end."""
    parts = struct.children
    if len(parts) != 4 or [parts[0].fields.get("value"), parts[2].fields.get("value")] != ["start", "end"]:
        return None
    end = parts[3]
    while (end.name in _PASS or end.name == "Cast") and end.children:
        end = end.children[0]
    under = _windowed(parts[1], times)
    if end.name == "Add" and len(end.children) == 2:
        length = duration(end.children[1])
        if length is None:
            return None
        first = replace(under, after=under.after.plus(length, "window"))
        return spread(first, replace(under, before=under.before.plus(length, "window")), length, session=False)
    if end.name in ("TimestampAddInterval", "TimeAdd"):
        gap = duration(end.children[1])
        known = gap if gap is not None else timedelta(hours=1)
        long = Reach(under.after.length, under.after.why, open=True).plus(known * SESSION_GAPS, "of session at most")
        early = Reach(under.before.length, under.before.why, open=True).plus(known * SESSION_GAPS, "of session at most")
        first = replace(under, before=under.before.plus(known, "session gap"), after=long)
        last = replace(under, before=early, after=under.after.plus(known, "session gap"))
        return spread(first, last, gap, session=True)
    return None


def _windowed(start: Expression, times: Times) -> Span:
    """What is behind the time that a window is made of: the analyser converts it to a number first."""
    numbers = (part for part in start.walk() if part.name == "PreciseTimestampConversion")
    made = next((part for part in numbers if str(part.fields.get("fromType")) in _TIME_TYPES), start)
    found = read(made.children[0] if made is not start else start, times)
    if isinstance(found, Moment):
        return found.span
    used = (read(part, times) for part in start.walk() if part.name in ("AttributeReference", "GetStructField"))
    spans = [one.span for one in used if isinstance(one, Moment)]
    return replace(reduce(Span.covering, spans, Span()), known=False)


def duration(expression: Expression) -> timedelta | None:
    """A constant interval; None for anything else, months among it: they have no fixed length."""
    while expression.name in ("Cast", "KnownNullable") and expression.children:
        expression = expression.children[0]
    if expression.name == "UnaryMinus" and expression.children:
        inner = duration(expression.children[0])
        return None if inner is None else -inner
    if expression.name != "Literal":
        return None
    value, kind = expression.fields.get("value"), expression.fields.get("dataType")
    return _literal(value, str(kind))


def _days(expression: Expression) -> timedelta | None:
    days = _whole(expression)
    return None if days is None else days * _DAY


def _whole(expression: Expression) -> int | None:
    """A constant whole number."""
    while expression.name == "Cast" and expression.children:
        expression = expression.children[0]
    text = str(expression.fields.get("value", ""))
    return int(text) if expression.name == "Literal" and text.lstrip("-").isdigit() else None


def _literal(value: Any, kind: str) -> timedelta | None:
    if value is None or kind.startswith("interval year") or kind.startswith("interval month"):
        return None
    text = str(value)
    if kind.startswith("interval ") or kind in ("long", "bigint"):
        return timedelta(microseconds=int(text)) if text.lstrip("-").isdigit() else None
    if kind in ("string", "interval"):
        try:
            return parse_duration(text.removeprefix("interval ").removeprefix("INTERVAL "))
        except ValueError:
            return None
    return None


def overall(span: Span) -> timedelta:
    """The length of the stretch that all inputs behind one row lie in."""
    return max(span.before.length + span.after.length, ZERO)
