"""What changes from one version of a row to the next, when a running aggregate writes a row again and again.

A query in update mode writes a group's row in every micro-batch that touches it. The columns that it is grouped by
stay; what it computes is revised. Where a revised value decides whether a row is written at all, or is part of the
sink's key, what the sink is left with depends on where micro-batches began and ended.

Works on the optimised plan: there a filter on the grouping columns has moved below the aggregate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rekappa.plan.shape import Revised
from rekappa.spark.plans.tree import Expression, Node

_PASSING = {"SubqueryAlias", "EventTimeWatermark", "Repartition", "RepartitionByExpression", "Sort", "ResolvedHint"}


@dataclass(frozen=True, slots=True)
class _Rows:
    attributes: tuple[Expression, ...]
    revised: frozenset[int]
    decide: bool
    streaming: bool


def revisions(plan: Node) -> Revised:
    """Of a whole query."""
    rows = _rows(plan)
    names = [str(one.fields.get("name", "")) for one in rows.attributes if one.id in rows.revised]
    return Revised(tuple(names), rows.decide)


def _rows(node: Node) -> _Rows:
    inputs = [_rows(child) for child in node.children]
    revised = frozenset[int]().union(*(one.revised for one in inputs))
    decide = any(one.decide for one in inputs)
    if not inputs:
        return _Rows(node.of("output"), revised, decide, node.name.startswith("StreamingRelation"))
    streaming = any(one.streaming for one in inputs)
    attributes = tuple(attribute for one in inputs for attribute in one.attributes)
    if node.name == "Aggregate":
        made = node.of("aggregateExpressions")
        counted = {one.id for one in made if any(part.name == "AggregateExpression" for part in one.walk())}
        changing = frozenset(
            one.id for one in made if one.id is not None and (one.id in counted or _uses(one, revised))
        )
        return _Rows(made, changing if streaming else frozenset(), decide, streaming)
    if node.name == "Project":
        made = node.of("projectList")
        changing = _ids(one for one in made if _uses(one, revised))
        return _Rows(made, changing, decide, streaming)
    if node.name in ("Filter", "Join", "Deduplicate"):
        asked = [*node.of("condition"), *node.of("keys")]
        return _Rows(attributes, revised, decide or any(_uses(one, revised) for one in asked), streaming)
    if node.name in _PASSING or not revised:
        return _Rows(attributes if node.name in _PASSING else _output(node, attributes), revised, decide, streaming)
    # Anything else may drop rows, or make others, by what it sees.
    made = _output(node, attributes)
    return _Rows(made, _ids(made), True, streaming)


def _ids(expressions: Iterable[Expression]) -> frozenset[int]:
    return frozenset(one.id for one in expressions if one.id is not None)


def _uses(expression: Expression, revised: frozenset[int]) -> bool:
    return any(part.id in revised for part in expression.walk() if part.name == "AttributeReference")


def _output(node: Node, otherwise: tuple[Expression, ...]) -> tuple[Expression, ...]:
    named = ("output", "outputAttrs", "outAttributes", "outputAttributes", "outputAttr")
    return next((node.of(name) for name in named if node.of(name)), otherwise)
