"""What in a query is the same in any order, and what is not: by lists of what is known, never by default.

Every operator and every function over a stream must be known (`functions`); one that is not is named. Values that
are the same but for the order of their elements, or but for rounding, are followed to the columns of the output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rekappa.plan.shape import Operation, Operator, Tolerance
from rekappa.spark.plans import functions
from rekappa.spark.plans.functions import Doubt
from rekappa.spark.plans.tree import Expression, Node
from rekappa.spark.plans.walk import CUSTOM, is_stream


@dataclass(frozen=True, slots=True)
class Doubtful:
    """A value, and the functions that make it doubtful."""

    doubt: Doubt
    causes: frozenset[str]

    def or_more(self, other: Doubtful | None) -> Doubtful:
        if other is None:
            return self
        return Doubtful(max(self.doubt, other.doubt), self.causes | other.causes)


Values = dict[int, Doubtful]


@dataclass(slots=True)
class Exactness:
    """`types` are the result types of the aggregates, by the id of their results."""

    types: Mapping[int, str]
    unknown: set[str] = field(default_factory=set)
    unordered: set[str] = field(default_factory=set)
    _defined: dict[int, tuple[tuple[Expression, ...], Values, bool]] = field(default_factory=dict)

    def operators(self) -> tuple[Operator, ...]:
        """What was found to depend on order, and what is not known to be safe."""
        found = []
        if self.unordered:
            found.append(Operator(Operation.ORDER_SENSITIVE, ", ".join(sorted(self.unordered))))
        if self.unknown:
            found.append(Operator(Operation.UNKNOWN, ", ".join(sorted(self.unknown))))
        return tuple(found)

    def tolerances(self, plan: Node, attributes: Iterable[Expression]) -> dict[str, Tolerance]:
        """Look at the whole plan; answer the columns of the output that are equal only up to order or rounding."""
        values = self._values(plan)
        found: dict[str, Tolerance] = {}
        for attribute in attributes:
            value = values.get(_key(attribute))
            if value is None:
                continue
            if value.doubt >= Doubt.LIST:
                self.unordered |= value.causes
            if value.doubt is not Doubt.ANY:
                name = str(attribute.fields.get("name", ""))
                found[name] = Tolerance.ROUNDING if value.doubt is Doubt.ROUNDING else Tolerance.ORDER
        return found

    def _values(self, node: Node) -> Values:
        below = [self._values(child) for child in node.children]
        values: Values = {key: value for one in below for key, value in one.items()}
        if node.name == "CTERelationDef":
            self._defined[int(node.fields["id"])] = (_output(node.children[0]), values, self._streams(node))
        if not self._streams(node):
            return values
        if functions.only_paces(node):
            return values
        self._known(node)
        if node.name == "WithCTE":
            return below[int(node.fields["plan"])]
        if node.name == "CTERelationRef":
            attributes, defined, _ = self._defined[int(node.fields["cteId"])]
            return _renamed(node.of("output"), [attributes], [defined])
        if node.name == "Union":
            outputs = [_output(child) for child in node.children]
            return _renamed(outputs[0], outputs, below)
        if node.name in ("Project", "Aggregate"):
            made = node.of("projectList") or node.of("aggregateExpressions")
            self._keys(node.of("groupingExpressions"), values, "grouping")
            return {_key(one): found for one in made if (found := self._judge(one, values)) is not None}
        if node.name == "Expand":
            return self._expanded(node, values)
        if node.name == "Generate":
            found = self._judge(node.of("generator")[0], values)
            return values | ({_key(one): found for one in node.of("generatorOutput")} if found is not None else {})
        if node.name in ("Filter", "Join"):
            for condition in node.of("condition"):
                value = self._judge(condition, values)
                if value is not None and value.doubt > Doubt.ROUNDING:
                    self.unordered |= value.causes
        elif node.name in ("Deduplicate", "Distinct", "DeduplicateWithinWatermark"):
            self._keys(node.of("keys") or _output(node.children[0]), values, "de-duplication")
        return values

    def _streams(self, node: Node) -> bool:
        named = (int(leaf.fields["cteId"]) for leaf in node.walk() if leaf.name == "CTERelationRef")
        return any(is_stream(leaf) for leaf in node.walk()) or any(self._defined[key][2] for key in named)

    def _known(self, node: Node) -> None:
        """Note an operator and functions that are not known."""
        if node.name not in functions.NODES and node.name not in CUSTOM and not is_stream(node):
            self.unknown.add(functions.OPAQUE.get(node.name, f"operator {node.name}"))
        if node.name in functions.OPAQUE or node.name in CUSTOM or node.name == "CollectMetrics":
            return
        for part in node.all_expressions():
            if not functions.is_known(part):
                self.unknown.add(functions.label(part))

    def _keys(self, keys: Iterable[Expression], values: Values, what: str) -> None:
        for key in keys:
            value = self._judge(key, values)
            if value is None:
                continue
            if value.doubt is Doubt.ROUNDING:
                self.unknown.add(f"{what} by a result of {', '.join(sorted(value.causes))}, which may be rounded")
            else:
                self.unordered |= value.causes

    def _expanded(self, node: Node, values: Values) -> Values:
        made = node.of("output")
        found: Values = {}
        projections = node.of("projections")
        for start in range(0, len(projections), max(len(made), 1)):
            for attribute, value in zip(made, projections[start : start + len(made)], strict=True):
                doubtful = self._judge(value, values)
                if doubtful is not None:
                    found[_key(attribute)] = doubtful.or_more(found.get(_key(attribute)))
        return found

    def _judge(self, expression: Expression, values: Values) -> Doubtful | None:
        if expression.name == "AttributeReference":
            return values.get(_key(expression))
        if expression.name == "AggregateExpression":
            return self._aggregate(expression, values)
        found: Doubtful | None = None
        for child in expression.children:
            inner = self._judge(child, values)
            found = found if inner is None else inner.or_more(found)
        if found is None or found.doubt in (Doubt.ROUNDING, Doubt.ANY):
            return found
        if functions.forgets_order(expression):
            return None
        if expression.name in functions.ORDER_KEEPING:
            return found
        return Doubtful(Doubt.ANY, found.causes)

    def _aggregate(self, expression: Expression, values: Values) -> Doubtful | None:
        function = expression.children[0]
        name = function.name
        inner: Doubtful | None = None
        for part in expression.children:
            for child in (*part.children, *(() if part is function else (part,))):
                value = self._judge(child, values)
                inner = inner if value is None else value.or_more(inner)
        if inner is not None and inner.doubt is not Doubt.ROUNDING:
            return Doubtful(Doubt.ANY, inner.causes)
        if name == "Count":
            return None
        result = expression.fields.get("resultId")
        kind = self.types.get(int(result["id"]), "double") if isinstance(result, dict) else "double"
        own = functions.doubt_of(name, kind)
        if own is None:
            return inner
        made = Doubtful(own, frozenset({functions.label(function)}))
        # A collection of rounded values can't be compared element by element.
        return made.or_more(inner) if inner is None or own is Doubt.ROUNDING else Doubtful(Doubt.ANY, made.causes)


def _renamed(made: Iterable[Expression], outputs: list[tuple[Expression, ...]], values: list[Values]) -> Values:
    found: Values = {}
    for position, attribute in enumerate(made):
        for output, known in zip(outputs, values, strict=True):
            value = known.get(_key(output[position])) if position < len(output) else None
            if value is not None:
                found[_key(attribute)] = value.or_more(found.get(_key(attribute)))
    return found


def _output(node: Node) -> tuple[Expression, ...]:
    """The attributes that come out of a node, as far as columns have to be matched by position."""
    for name in ("projectList", "aggregateExpressions", "output", "outputAttrs"):
        if node.of(name):
            return node.of(name)
    if node.name == "Generate":
        return _output(node.children[0]) + node.of("generatorOutput")
    if node.name == "Join":
        return _output(node.children[0]) + _output(node.children[1])
    return _output(node.children[0]) if node.children else ()


def _key(expression: Expression) -> int:
    return -1 if expression.id is None else expression.id
