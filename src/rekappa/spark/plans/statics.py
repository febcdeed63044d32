"""The data that a plan reads as it is now, beside its streams, by the names that people know it by."""

from __future__ import annotations

from typing import Any

from rekappa.spark.plans.jvm import each, simple_name

_MADE = ("OneRowRelation", "LocalRelation", "Range", "LogicalRDD", "CTERelationRef", "EmptyRelation")
"""Rows that the job makes itself: the same whenever it runs."""


def static_names(plan: Any) -> tuple[str, ...]:
    """The names of the tables and files in a plan of the JVM, subqueries included."""
    found = {_name(leaf) for leaf in _leaves(plan) if not leaf.isStreaming() and simple_name(leaf) not in _MADE}
    return tuple(sorted(found))


def _leaves(node: Any) -> list[Any]:
    found = list(each(node.collectLeaves()))
    for inner in each(node.subqueriesAll()):
        found += _leaves(inner)
    return found


def _name(leaf: Any) -> str:
    kind = simple_name(leaf)
    if kind == "LogicalRelation":
        table, relation = leaf.catalogTable(), leaf.relation()
        if table.isDefined():
            return str(table.get().identifier().unquotedString())
        if simple_name(relation) == "HadoopFsRelation":
            return ", ".join(str(path.toUri().getPath()) for path in each(relation.location().rootPaths()))
        if simple_name(relation) == "JDBCRelation":
            return f"the JDBC table {relation.jdbcOptions().tableOrQuery()}"
        return f"a {simple_name(relation)}"
    if kind == "HiveTableRelation":
        return str(leaf.tableMeta().identifier().unquotedString())
    if kind.startswith("DataSourceV2"):
        return str(leaf.name())
    if kind == "InMemoryRelation":
        return "a cached DataFrame"
    return f"a {kind}"
