"""What depends on the order of events, followed through a plan: on trees made by hand, without Spark."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rekappa.plan.shape import Operation, Tolerance
from rekappa.spark.plans.exactness import Exactness
from rekappa.spark.plans.functions import AGGREGATES, CLOCK, NODES, RANDOM, Doubt
from rekappa.spark.plans.scalars import SCALARS
from rekappa.spark.plans.tree import Expression, Node

STREAM = Node("StreamingRelation", {}, (), {"output": ()})


def column(key: int, name: str = "c") -> Expression:
    return Expression("AttributeReference", {"exprId": {"id": key}, "name": name})


def alias(key: int, of: Expression, name: str = "made") -> Expression:
    return Expression("Alias", {"exprId": {"id": key}, "name": name}, (of,))


def call(name: str, *of: Expression) -> Expression:
    return Expression(name, {}, of)


def aggregate(name: str, *of: Expression, result: int = 900) -> Expression:
    return Expression("AggregateExpression", {"resultId": {"id": result}}, (call(name, *of),))


def grouped(*made: Expression, below: Node = STREAM) -> Node:
    return Node("Aggregate", {}, (below,), {"aggregateExpressions": made, "groupingExpressions": (column(1, "key"),)})


def project(below: Node, *made: Expression) -> Node:
    return Node("Project", {}, (below,), {"projectList": made})


def look(
    plan: Node, *made: Expression, types: dict[int, str] | None = None
) -> tuple[dict[str, Any], set[Operation], str]:
    found = Exactness(types or {})
    tolerances = found.tolerances(plan, made)
    return tolerances, {one.kind for one in found.operators()}, " ".join(one.detail for one in found.operators())


@pytest.mark.parametrize(
    ("function", "type_", "tolerance", "kinds"),
    [
        ("Count", "bigint", None, set()),
        ("Sum", "bigint", None, set()),
        ("Sum", "decimal(20,2)", None, set()),
        ("Sum", "double", Tolerance.ROUNDING, set()),
        ("Average", "double", Tolerance.ROUNDING, set()),
        ("StddevSamp", "double", Tolerance.ROUNDING, set()),
        ("Percentile", "double", None, set()),
        ("CollectSet", "array<string>", Tolerance.ORDER, set()),
        ("CollectList", "array<string>", Tolerance.ORDER, {Operation.ORDER_SENSITIVE}),
        ("MaxBy", "string", None, {Operation.ORDER_SENSITIVE}),
        ("ApproximatePercentile", "double", None, {Operation.ORDER_SENSITIVE}),
        ("Max", "string", None, set()),
        ("Max", "string collate UTF8_LCASE", None, {Operation.ORDER_SENSITIVE}),
        ("NewInSpark9", "bigint", None, {Operation.ORDER_SENSITIVE, Operation.UNKNOWN}),
    ],
)
def test_aggregates_by_class_and_type(
    function: str, type_: str, tolerance: Tolerance | None, kinds: set[Operation]
) -> None:
    made = alias(10, aggregate(function, column(2)))
    found, operators, _ = look(grouped(made), made, types={900: type_})
    assert found == ({"made": tolerance} if tolerance else {})
    assert operators == kinds


def test_a_list_that_is_sorted_later_is_the_same_in_any_order() -> None:
    listed = alias(10, aggregate("CollectList", column(2)))
    for function, sensitive in (("SortArray", False), ("Size", False), ("ConcatWs", True), ("ElementAt", True)):
        made = alias(11, call(function, column(10)))
        found, operators, words = look(project(grouped(listed), made), made)
        assert found == {}
        assert (operators == {Operation.ORDER_SENSITIVE}) is sensitive
        assert ("collect_list()" in words) is sensitive


def test_rounding_is_followed_through_names_and_functions() -> None:
    total = alias(10, aggregate("Sum", column(2)), "total")
    renamed, half, other = alias(11, column(10), "t"), alias(12, call("Divide", column(10)), "half"), column(1, "key")
    found, operators, _ = look(project(grouped(total), renamed, half, other), renamed, half, other)
    assert found == {"t": Tolerance.ROUNDING, "half": Tolerance.ROUNDING}
    assert not operators


def test_groups_by_a_rounded_number_are_not_known_to_be_safe() -> None:
    total = alias(10, aggregate("Sum", column(2)))
    count = alias(12, aggregate("Count", column(2)))
    again = Node(
        "Aggregate", {}, (grouped(total),), {"aggregateExpressions": (count,), "groupingExpressions": (column(10),)}
    )
    _, operators, words = look(again, count)
    assert operators == {Operation.UNKNOWN}
    assert "grouping by a result of sum()" in words


@given(st.text(st.characters(categories=["Lu", "Ll"]), min_size=1, max_size=12), st.booleans())
def test_whatever_stands_in_no_list_is_named(name: str, as_operator: bool) -> None:
    assume(name not in (NODES if as_operator else {*SCALARS, *AGGREGATES, *CLOCK, *RANDOM}))
    made = alias(10, call("Upper" if as_operator else name, column(2)))
    plan = Node(name, {}, (project(STREAM, made),)) if as_operator else project(STREAM, made)
    _, operators, words = look(plan, made)
    assert operators == {Operation.UNKNOWN}
    assert name in words


@given(st.lists(st.sampled_from(sorted(SCALARS - {"AttributeReference", "AggregateExpression"})), max_size=5))
def test_no_function_of_a_row_makes_an_arbitrary_value_sure(functions: list[str]) -> None:
    made = aggregate("MaxBy", column(2), column(3))
    for name in functions:
        made = call(name, made)
    named = alias(10, made)
    _, operators, _ = look(grouped(named), named)
    assert Operation.ORDER_SENSITIVE in operators


def test_the_lists_do_not_overlap() -> None:
    lists = [SCALARS, set(AGGREGATES), set(CLOCK), set(RANDOM)]
    assert sum(len(one) for one in lists) == len(set().union(*lists))
    assert AGGREGATES["First"] is Doubt.ANY
