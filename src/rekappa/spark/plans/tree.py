"""Spark's plans as trees of plain values, from the JSON that Spark itself writes of them.

Spark lists a tree in pre-order with the number of children beside each node; expressions inside a plan's
fields are written the same way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Expression:
    """One node of an expression: `name` is the class, without its package; `plan` that of a subquery."""

    name: str
    fields: dict[str, Any]
    children: tuple[Expression, ...] = ()
    plan: Node | None = None

    @property
    def id(self) -> int | None:
        """The identity that Spark gives to an attribute or alias."""
        found = self.fields.get("exprId")
        return int(found["id"]) if isinstance(found, dict) else None

    def walk(self) -> Iterator[Expression]:
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Node:
    """One operator of a plan."""

    name: str
    fields: dict[str, Any]
    children: tuple[Node, ...] = ()
    expressions: dict[str, tuple[Expression, ...]] = field(default_factory=dict)

    def walk(self) -> Iterator[Node]:
        """Children before parents: the order of the data's flow."""
        for child in self.children:
            yield from child.walk()
        yield self

    def all_expressions(self) -> Iterator[Expression]:
        """Every expression of this operator, those of its subqueries included."""
        for group in self.expressions.values():
            for expression in group:
                for part in expression.walk():
                    yield part
                    for node in part.plan.walk() if part.plan is not None else ():
                        yield from node.all_expressions()

    def of(self, name: str) -> tuple[Expression, ...]:
        return self.expressions.get(name, ())


def parse(text: str) -> Node:
    """The plan behind Spark's `toJSON`."""
    rows = iter(json.loads(text))
    return _node(rows)


def _node(rows: Iterator[dict[str, Any]]) -> Node:
    row = next(rows)
    children = tuple(_node(rows) for _ in range(row["num-children"]))
    fields = {key: value for key, value in row.items() if key not in ("class", "num-children")}
    expressions = {key: found for key, value in fields.items() if (found := _expressions(value))}
    return Node(_simple(row["class"]), fields, children, expressions)


def _expressions(value: Any) -> tuple[Expression, ...]:
    """The expressions of one field: a list of nodes is one expression, a list of lists is several."""
    if not isinstance(value, list) or not value:
        return ()
    if isinstance(value[0], dict) and "class" in value[0]:
        return (_expression(iter(value)),)
    return tuple(found for item in value for found in _expressions(item))


def _expression(rows: Iterator[dict[str, Any]]) -> Expression:
    row = next(rows)
    children = tuple(_expression(rows) for _ in range(row["num-children"]))
    fields = {key: value for key, value in row.items() if key not in ("class", "num-children")}
    inner = fields.get("plan")
    plan = _node(iter(inner)) if isinstance(inner, list) and inner and "class" in inner[0] else None
    return Expression(_simple(row["class"]), fields, children, plan)


def _simple(name: str) -> str:
    return name.rsplit(".", 1)[-1].rstrip("$")
