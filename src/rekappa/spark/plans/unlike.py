"""Joins that Spark makes otherwise of streams than of tables, so that a batch job is no replay of them.

Of an outer join a stream never gives the unmatched rows for which a condition on their own side alone holds
(`l.id = r.id AND l.n > 5`, left outer: rows with n > 5), and it joins null keys with null keys where neither side is
known to have none, as in a full outer join. Both were seen with Spark alone: tests/spark/test_stream_joins.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rekappa.plan.shape import Operation, Operator
from rekappa.spark.plans.jvm import each, nodes, simple_name

_KEPT = {"LeftOuter": ("left",), "RightOuter": ("right",), "FullOuter": ("left", "right")}


def unlike_batch(optimised: Any) -> tuple[Operator, ...]:
    """What an optimised plan has of them, each with the reason."""
    found: dict[str, None] = {}
    for node in nodes(optimised):
        if simple_name(node) == "Join" and node.left().isStreaming() and node.right().isStreaming():
            found |= dict.fromkeys(_reasons(node))
    return tuple(Operator(Operation.AS_STREAMED, reason) for reason in found)


def _reasons(join: Any) -> Iterator[str]:
    if not join.condition().isDefined():
        return
    kind, parts = simple_name(join.joinType()), list(_parts(join.condition().get()))
    for side in _KEPT.get(kind, ()):
        rows = getattr(join, side)()
        for part in parts:
            if part.references().subsetOf(rows.outputSet()):
                yield f"{kind} with a condition on the {side} side alone, {part.sql()}"
    for part in parts:
        if simple_name(part) == "EqualTo" and not _never_null(join, part):
            yield f"{kind} by keys that may be null on both sides, {part.sql()}"


def _parts(condition: Any) -> Iterator[Any]:
    if simple_name(condition) == "And":
        yield from _parts(condition.left())
        yield from _parts(condition.right())
    else:
        yield condition


def _never_null(join: Any, equal: Any) -> bool:
    """Whether the two sides of an equality are no pair of keys, or one of them is never null."""
    one, other = equal.left(), equal.right()
    for first, second in ((one, other), (other, one)):
        if _of(join.left(), first) and _of(join.right(), second):
            return _has_none(join.left(), first) or _has_none(join.right(), second)
    return True


def _of(rows: Any, key: Any) -> bool:
    return not key.references().isEmpty() and bool(key.references().subsetOf(rows.outputSet()))


def _has_none(rows: Any, key: Any) -> bool:
    if not key.nullable():
        return True
    known = rows.constraints().toSeq()
    return any(simple_name(one) == "IsNotNull" and one.child().semanticEquals(key) for one in each(known))
