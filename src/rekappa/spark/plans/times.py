"""Where the times in a plan come from: each attribute that holds a time, and the span of inputs behind it.

Reading is symbolic. Every time-valued expression is one anchored attribute plus an offset, the start or end
of a window over one, or unknown. Unknown is an answer too: margins are then chosen wider.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rekappa.plan.shape import ZERO, Reach, Span
from rekappa.spark.plans.tree import Expression
from rekappa.timeline import parse_duration

SESSION_GAPS = 12
"""A session has no greatest length: margins are made for sessions of up to this many gaps, and say so."""

_PASS = {
    "PreciseTimestampConversion",
    "KnownNullable",
    "KnownNotNull",
    "Alias",
    "Cast",
    "CommonExpressionDef",
    "DatetimeSub",
}
_TRUNCATIONS = {"MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 7 * 86400, "MONTH": 31 * 86400, "YEAR": 366 * 86400}


@dataclass(frozen=True, slots=True)
class Spread:
    """The start and the end of a window column; `length` is None for a gap that is computed per row."""

    start: Span
    end: Span
    length: timedelta | None
    session: bool


Times = dict[int, "Span | Spread"]


def shifted(span: Span, by: timedelta) -> Span:
    """The span of t + by, given that of t: what lies `after` t lies less far after t + by."""
    return Span(
        Reach(span.before.length + by, span.before.why, span.before.open),
        Reach(span.after.length - by, span.after.why, span.after.open),
    )


def read(expression: Expression, times: Times) -> Span | Spread | None:
    """The span behind an expression that holds a time or a window; None for anything else."""
    name, children = expression.name, expression.children
    if name == "AttributeReference":
        return times.get(expression.id if expression.id is not None else -1)
    if name == "CreateNamedStruct":
        return read_window(expression, times)
    if name == "GetStructField":
        return _field(expression, times)
    if name in _PASS and children:
        return read(children[0], times)
    if name in ("TimestampAddInterval", "TimeAdd", "Add", "Subtract") and len(children) == 2:
        base, by = read(children[0], times), duration(children[1])
        if isinstance(base, Span) and by is not None:
            return shifted(base, -by if name == "Subtract" else by)
    if name == "TruncTimestamp" and len(children) == 2:
        base, unit = read(children[1], times), str(children[0].fields.get("value", "")).upper()
        if isinstance(base, Span) and unit in _TRUNCATIONS:
            return Span(base.before, base.after.plus(timedelta(seconds=_TRUNCATIONS[unit]), f"truncation to {unit}"))
    return None


def _field(expression: Expression, times: Times) -> Span | Spread | None:
    base = expression.children[0]
    if base.name == "AttributeReference" and base.fields.get("name") == "__metadata__":
        # Where Kafka took an event in is as good an anchor as its own time.
        return Span() if expression.fields.get("name") == "kafka_ingestion_ts" else None
    spread = read(base, times)
    if isinstance(spread, Spread):
        return spread.start if expression.fields.get("ordinal") == 0 else spread.end
    return None


def read_window(struct: Expression, times: Times) -> Spread | None:
    """The window that Spark's analyser made of `window` or `session_window`: a struct of start and end."""
    parts = struct.children
    if len(parts) != 4 or [parts[0].fields.get("value"), parts[2].fields.get("value")] != ["start", "end"]:
        return None
    end = parts[3]
    while end.name in _PASS and end.children:
        end = end.children[0]
    under = next((found for part in parts[1].walk() if isinstance(found := read_plain(part, times), Span)), Span())
    if end.name == "Add" and len(end.children) == 2:
        length = duration(end.children[1])
        if length is None:
            return None
        start = Span(under.before, under.after.plus(length, "window"))
        return Spread(start, Span(under.before.plus(length, "window"), under.after), length, session=False)
    if end.name in ("TimestampAddInterval", "TimeAdd"):
        gap = duration(end.children[1])
        known = gap if gap is not None else timedelta(hours=1)
        first = under.before.plus(known, "session gap")
        long = Reach(under.after.length, under.after.why, open=True).plus(known * SESSION_GAPS, "of session at most")
        early = Reach(under.before.length, under.before.why, open=True).plus(known * SESSION_GAPS, "of session at most")
        return Spread(Span(first, long), Span(early, under.after.plus(known, "session gap")), gap, session=True)
    return None


def read_plain(expression: Expression, times: Times) -> Span | None:
    """The span of an attribute or of a field of a window, and of nothing else."""
    if expression.name not in ("AttributeReference", "GetStructField"):
        return None
    found = read(expression, times)
    return found if isinstance(found, Span) else None


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
