"""What Spark's JSON of a plan leaves out, asked of the plan itself: watermark delays, the types of aggregates, columns
that are always null."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any


def watermark_delays(plan: Any) -> dict[str, timedelta]:
    """The delay of every watermark, by the id of its node."""
    found: dict[str, timedelta] = {}
    for node in nodes(plan):
        if simple_name(node) == "EventTimeWatermark":
            delay = node.delay()
            days = timedelta(days=31 * _number(delay, "months") + _number(delay, "days"))
            found[node.nodeId().toString()] = days + timedelta(microseconds=_number(delay, "microseconds"))
    return found


def aggregate_types(plan: Any) -> dict[int, str]:
    """The type of what every aggregate gives, by the id of its result."""
    found: dict[int, str] = {}
    for node in nodes(plan):
        if simple_name(node) != "Aggregate":
            continue
        waiting = each(node.aggregateExpressions())
        while waiting:
            expression = waiting.pop()
            if simple_name(expression) == "AggregateExpression":
                found[int(expression.resultId().id())] = str(expression.dataType().catalogString())
            waiting += each(expression.children())
    return found


def always_null(plan: Any) -> frozenset[str]:
    """The names of columns of which the plan itself says that they are null in every row."""
    if simple_name(plan) != "Project":
        return frozenset()
    chosen = [(str(one.name()), _is_null(one)) for one in each(plan.projectList())]
    return frozenset(name for name, null in chosen if null) - {name for name, null in chosen if not null}


def _is_null(column: Any) -> bool:
    if simple_name(column) != "Alias":
        return False
    value = column.child()
    return simple_name(value) == "Literal" and value.value() is None


def nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in each(plan.children()):
        yield from nodes(child)


def each(sequence: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [sequence.apply(position) for position in range(sequence.size())]


def simple_name(thing: Any) -> str:
    return str(thing.getClass().getSimpleName()).rstrip("$")


def _number(interval: Any, name: str) -> int:
    # CalendarInterval's fields are public and final; py4j reads fields by reflection only.
    return int(interval.getClass().getField(name).get(interval))
