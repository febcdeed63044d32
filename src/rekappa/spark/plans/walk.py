"""One walk over an analysed plan, sources first: its operators, and the span of inputs behind every time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from rekappa.plan.shape import ZERO, Anchor, Operation, Operator, Reach, Span
from rekappa.spark.plans.functions import only_paces
from rekappa.spark.plans.joins import joined
from rekappa.spark.plans.ranges import time_range
from rekappa.spark.plans.times import Moment, Nested, Spread, Times, covering, from_source, moment, overall, read
from rekappa.spark.plans.tree import Expression, Node
from rekappa.timeline import format_duration

CUSTOM = {
    "TransformWithState", "TransformWithStateInPandas", "TransformWithStateInPySpark", "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
}  # fmt: skip
_OUTPUTS = ("output", "outputAttrs", "outAttributes", "outputAttributes", "outputAttr")
_LIMITS = {"GlobalLimit", "LocalLimit", "Offset", "Tail"}

Origins = dict[int, frozenset[Anchor]]
"""The columns of sources that an attribute is computed from."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What comes out of one node: its attributes in order, the times among them, and where each is from."""

    attributes: tuple[Expression, ...]
    times: Times
    streaming: bool
    origins: Origins = field(default_factory=dict)

    @property
    def ids(self) -> set[int]:
        return {attribute.id for attribute in self.attributes if attribute.id is not None}


@dataclass(slots=True)
class Walk:
    """`sources` are the names of the sources by what Spark calls their probes."""

    sources: Mapping[str, str]
    operators: list[Operator] = field(default_factory=list)
    watermarked: dict[str, set[str]] = field(default_factory=dict)
    anchors: set[Anchor] = field(default_factory=set)
    _timed: set[Anchor] = field(default_factory=set)
    _defined: dict[int, Rows] = field(default_factory=dict)

    def rows(self, node: Node) -> Rows:
        inputs = [self.rows(child) for child in node.children]
        if not inputs:
            return self._leaf(node)
        if node.name == "WithCTE":
            return inputs[int(node.fields["plan"])]
        if node.name == "CTERelationDef":
            self._defined[int(node.fields["id"])] = inputs[0]
            return inputs[0]
        if node.name == "Join":
            return self._join(node, *inputs)
        if node.name == "Union":
            return _union(inputs)
        one = inputs[0]
        if only_paces(node):
            return one
        if node.name in CUSTOM:
            self.operators.append(Operator(Operation.CUSTOM, node.name))
            return Rows(_output(node, one), {}, one.streaming)
        if node.name == "EventTimeWatermark":
            return self._watermark(node, one)
        if node.name == "Aggregate":
            return self._aggregate(node, one)
        if one.streaming:
            self._note(node, one)
        if node.name in ("Project", "Expand"):
            return _projected(node, one)
        produced = _output(node, one)
        kept = _ids(produced)
        origins = {key: found for key, found in one.origins.items() if key in kept}
        if node.name == "Generate":
            inner = _origins(node.of("generator"), one)
            origins |= dict.fromkeys(_ids(node.of("generatorOutput")), inner)
        return Rows(produced, {key: time for key, time in one.times.items() if key in kept}, one.streaming, origins)

    def _leaf(self, node: Node) -> Rows:
        attributes = node.of("output")
        if node.name == "CTERelationRef":
            return _again(attributes, self._defined[int(node.fields["cteId"])])
        if not is_stream(node):
            return Rows(attributes, {}, streaming=False)
        source = self.source_of(node) or ""
        times: Times = {}
        origins: Origins = {}
        for one in attributes:
            if one.id is not None:
                name = str(one.fields["name"])
                origins[one.id] = frozenset({Anchor(source, name)})
                if (found := from_source(source, name, one.fields.get("dataType"))) is not None:
                    times[one.id] = found
                if isinstance(found, Moment):
                    self._timed.add(Anchor(source, name))
        return Rows(attributes, times, True, origins)

    def source_of(self, leaf: Node) -> str | None:
        """The source whose probe this leaf reads; None for a stream that the job opens itself."""
        return self.sources.get(str(leaf.fields.get("sourceName", "")))

    def _watermark(self, node: Node, one: Rows) -> Rows:
        column = node.of("eventTime")[0]
        times = dict(one.times)
        if column.id is not None and not isinstance(times.get(column.id), (Moment, Spread)):
            origins = _origins((column,), one)
            # A column that holds no time is measured by nobody, so it is asked about; one that does would be measured
            # as if the watermark's time were its own.
            times[column.id] = moment(Span(anchors=origins, known=not origins & self._timed))
        self._anchored(read(column, times))
        leaves = [leaf for leaf in node.walk() if is_stream(leaf)]
        names = {name for leaf in leaves if (name := self.source_of(leaf)) is not None}
        self.watermarked.setdefault(str(node.fields["nodeId"]), set()).update(names)
        return Rows(one.attributes, times, one.streaming, one.origins)

    def _anchored(self, *found: Moment | Spread | Nested | None) -> None:
        for one in found:
            if isinstance(one, Spread):
                self.anchors |= one.start.span.anchors
            elif isinstance(one, Moment):
                self.anchors |= one.span.anchors

    def _note(self, node: Node, one: Rows) -> None:
        """Operators that leave the times as they are."""
        if node.name in ("Deduplicate", "Distinct"):
            keys = {key.id for key in node.of("keys")} or one.ids
            timed = {key for key, time in one.times.items() if not isinstance(time, Nested)}
            some = Operation.TIMED_DEDUP if keys & timed else Operation.OPEN_DEDUP
            kind = Operation.WHOLE_ROW_DEDUP if keys >= one.ids else some
            self.operators.append(Operator(kind, _names(node.of("keys"))))
        elif node.name == "DeduplicateWithinWatermark":
            self.operators.append(Operator(Operation.DEDUP_WITHIN, _names(node.of("keys"))))
        elif node.name in _LIMITS:
            if not any(operator.kind is Operation.LIMIT for operator in self.operators):
                self.operators.append(Operator(Operation.LIMIT))
        elif node.name == "Sort" and node.fields.get("global"):
            self.operators.append(Operator(Operation.SORT))
        elif node.name == "Expand" and _leaves_a_time_out(node, one):
            self.operators.append(
                Operator(Operation.UNKNOWN, "a total over all of time (rollup, cube or grouping sets)")
            )

    def _aggregate(self, node: Node, one: Rows) -> Rows:
        made = node.of("aggregateExpressions")
        if not one.streaming:
            return Rows(made, {}, streaming=False)
        read_keys = (read(key, one.times) for key in node.of("groupingExpressions"))
        keys = [found for found in read_keys if isinstance(found, (Moment, Spread))]
        windows = [key for key in keys if isinstance(key, Spread)]
        self._anchored(*keys)
        if windows:
            window = windows[0]
            kind = Operation.SESSION if window.session else Operation.WINDOW
            words = format_duration(window.length) if window.length is not None else "a gap computed per row"
            self.operators.append(Operator(kind, words, window.length))
        elif keys:
            self.operators.append(Operator(Operation.TIME_GROUP))
        else:
            self.operators.append(Operator(Operation.AGGREGATE, _names(node.of("groupingExpressions"))))
        origins = _made(made, one)
        if not keys:
            return Rows(made, {}, True, origins)
        whole = windows[0].start.span if windows else next(key.span for key in keys if isinstance(key, Moment))
        either = Reach(overall(whole), (*whole.before.why, *whole.after.why), whole.before.open or whole.after.open)
        times: Times = {}
        for expression in made:
            if expression.id is None:
                continue
            inside = next((part for part in expression.walk() if part.name == "AggregateExpression"), None)
            if inside is None:
                found = read(expression, one.times)
            else:
                timed = [found for part in inside.walk() if isinstance(found := read(part, one.times), Moment)]
                plain = any(part.name in ("Max", "Min", "First", "Last") for part in inside.walk())
                anchors = whole.anchors.union(*(part.span.anchors for part in timed))
                span = Span(either, either, anchors, whole.known and anchors == whole.anchors)
                found = moment(span) if timed and plain else None
            if found is not None:
                times[expression.id] = found
        return Rows(made, times, True, origins)

    def _join(self, node: Node, left: Rows, right: Rows) -> Rows:
        kind = str(node.fields.get("joinType", {}))
        one_sided = "LeftSemi" in kind or "LeftAnti" in kind
        attributes = left.attributes if one_sided else left.attributes + right.attributes
        origins = left.origins | right.origins
        if not (left.streaming and right.streaming):
            return Rows(attributes, left.times | right.times, left.streaming or right.streaming, origins)
        word = kind.rsplit(".", 1)[-1].strip("'}$ ")
        condition = node.of("condition")
        found = time_range(condition[0], left.times, right.times, self.anchors) if condition else None
        if found is None:
            self.operators.append(Operator(Operation.OPEN_JOIN, word))
            return Rows(attributes, {}, True, origins)
        self.anchors |= found.left.span.anchors | found.right.span.anchors
        width = max(abs(found.low), abs(found.high))
        detail = f"{word}, {_signed(found.low)} to {_signed(found.high)}"
        self.operators.append(Operator(Operation.JOIN, detail, width))
        return Rows(attributes, joined(found, left.times, right.times), True, origins)


def is_stream(node: Node) -> bool:
    """Whether a stream begins here. A named part of the query that is used again is none, though Spark marks it so."""
    marked = node.name.startswith("StreamingRelation") or node.fields.get("isStreaming") is True
    return marked and node.name != "CTERelationRef"


def _signed(value: timedelta) -> str:
    return ("+" if value >= ZERO else "") + format_duration(value)


def _union(inputs: list[Rows]) -> Rows:
    first = inputs[0]
    times: Times = {}
    origins: Origins = {}
    streams = [rows for rows in inputs if rows.streaming]
    for position, attribute in enumerate(first.attributes):
        if attribute.id is None:
            continue
        ids = [(rows, _key(rows.attributes[position])) for rows in streams]
        origins[attribute.id] = frozenset().union(*(rows.origins.get(key, frozenset()) for rows, key in ids))
        found = [rows.times.get(key) for rows, key in ids]
        merged = found[0] if found else None
        for other in found[1:]:
            same = merged is not None and other is not None and type(merged) is type(other)
            merged = covering(merged, other) if same and merged is not None and other is not None else None
        if merged is not None:
            times[attribute.id] = merged
    return Rows(first.attributes, times, bool(streams), origins)


def _again(attributes: tuple[Expression, ...], defined: Rows) -> Rows:
    """A named part of the query, used under attributes of its own."""
    pairs = [(one.id, other.id) for one, other in zip(attributes, defined.attributes, strict=True)]
    times: Times = {
        new: covering(defined.times[old], defined.times[old])
        for new, old in pairs
        if new is not None and old is not None and old in defined.times
    }
    origins = {new: defined.origins.get(old, frozenset()) for new, old in pairs if new is not None and old is not None}
    return Rows(attributes, times, defined.streaming, origins)


def _projected(node: Node, one: Rows) -> Rows:
    if node.name == "Project":
        made = node.of("projectList")
        found = {item.id: time for item in made if item.id is not None and (time := read(item, one.times)) is not None}
        return Rows(made, found, one.streaming, _made(made, one))
    made = node.of("output")
    first = node.of("projections")[: len(made)]
    times: Times = {}
    origins: Origins = {}
    for attribute, value in zip(made, first, strict=False):
        if attribute.id is not None:
            origins[attribute.id] = _origins((value,), one)
            if (time := read(value, one.times)) is not None:
                times[attribute.id] = time
    return Rows(made, times, one.streaming, origins)


def _leaves_a_time_out(node: Node, one: Rows) -> bool:
    """Whether some of the row's copies lack a time that others have: it is grouped by in those only."""
    width, values = len(node.of("output")), node.of("projections")
    timed = [isinstance(read(value, one.times), (Moment, Spread)) for value in values]
    return any(len({timed[at] for at in range(column, len(values), width)}) > 1 for column in range(width))


def _made(made: Iterable[Expression], one: Rows) -> Origins:
    return {item.id: _origins((item,), one) for item in made if item.id is not None}


def _origins(expressions: Iterable[Expression], one: Rows) -> frozenset[Anchor]:
    parts = (part for expression in expressions for part in expression.walk() if part.name == "AttributeReference")
    return frozenset().union(*(one.origins.get(_key(part), frozenset()) for part in parts))


def _output(node: Node, one: Rows) -> tuple[Expression, ...]:
    if node.name == "Generate":
        return one.attributes + node.of("generatorOutput")
    return next((node.of(name) for name in _OUTPUTS if node.of(name)), one.attributes)


def _key(expression: Expression) -> int:
    return -1 if expression.id is None else expression.id


def _ids(attributes: tuple[Expression, ...]) -> set[int]:
    return {attribute.id for attribute in attributes if attribute.id is not None}


def _names(expressions: tuple[Expression, ...]) -> str:
    return ", ".join(str(expression.fields.get("name", expression.name)) for expression in expressions)
