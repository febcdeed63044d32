"""The operators with state of a streaming query, from its analysed plan, in the order of the plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rekappa.spark.plans.jvm import each, nodes, simple_name
from rekappa.spark.plans.walk import CUSTOM
from rekappa.spark.private import analysed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DEDUPLICATION = ("Deduplicate", "DeduplicateWithinWatermark")


def stateful_operators(rows: DataFrame) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Kind, keys and values of each, in the words of the query's SQL. State holds them in this order."""
    return [found for node in nodes(analysed(rows)) if node.isStreaming() and (found := _operator(node)) is not None]


def _operator(node: Any) -> tuple[str, tuple[str, ...], tuple[str, ...]] | None:
    kind = simple_name(node)
    if kind == "Aggregate":
        made = [part for one in each(node.aggregateExpressions()) for part in _aggregates(one)]
        return "aggregate", _told(each(node.groupingExpressions())), tuple(dict.fromkeys(_told(made)))
    if kind in _DEDUPLICATION:
        return "deduplication", _told(each(node.keys())), ()
    if kind == "Join" and node.left().isStreaming() and node.right().isStreaming():
        condition = node.condition()
        sides = (*_told(each(node.left().output())), *_told(each(node.right().output())))
        return "join", _told([condition.get()] if condition.isDefined() else []), sides
    if kind in CUSTOM:
        return "custom state", (), ()
    return None


def _aggregates(expression: Any) -> Iterator[Any]:
    """The aggregate functions of an expression, in the order in which Spark gives them places."""
    if simple_name(expression) == "AggregateExpression":
        yield expression
        return
    for child in each(expression.children()):
        yield from _aggregates(child)


def _told(expressions: list[Any]) -> tuple[str, ...]:
    return tuple(f"{one.sql()} {one.dataType().catalogString()}" for one in expressions)
