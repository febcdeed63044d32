"""The data that a plan reads as it is now, beside its streams, by the names that people know it by."""

from __future__ import annotations

from typing import Any

_MADE = ("OneRowRelation", "LocalRelation", "Range", "LogicalRDD", "CTERelationRef", "EmptyRelation")
"""Rows that the job makes itself: the same whenever it runs."""


def static_names(plan: Any) -> tuple[str, ...]:
    """The names of the tables and files in a plan of the JVM, subqueries included."""
    found = {_name(leaf) for leaf in _leaves(plan) if not leaf.isStreaming() and _class(leaf) not in _MADE}
    return tuple(sorted(found))


def _leaves(node: Any) -> list[Any]:
    found = list(_each(node.collectLeaves()))
    for inner in _each(node.subqueriesAll()):
        found += _leaves(inner)
    return found


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(position) for position in range(sequence.size())]


def _class(thing: Any) -> str:
    return str(thing.getClass().getSimpleName()).rstrip("$")


def _name(leaf: Any) -> str:
    kind = _class(leaf)
    if kind == "LogicalRelation":
        table, relation = leaf.catalogTable(), leaf.relation()
        if table.isDefined():
            return str(table.get().identifier().unquotedString())
        if _class(relation) == "HadoopFsRelation":
            return ", ".join(str(path.toUri().getPath()) for path in _each(relation.location().rootPaths()))
        if _class(relation) == "JDBCRelation":
            return f"the JDBC table {relation.jdbcOptions().tableOrQuery()}"
        return f"a {_class(relation)}"
    if kind == "HiveTableRelation":
        return str(leaf.tableMeta().identifier().unquotedString())
    if kind.startswith("DataSourceV2"):
        return str(leaf.name())
    if kind == "InMemoryRelation":
        return "a cached DataFrame"
    return f"a {kind}"
