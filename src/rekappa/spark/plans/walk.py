"""One walk over an analysed plan, sources first: its operators, and the span of inputs behind every time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from rekappa.plan.shape import ZERO, Kind, Operator, Reach, Span
from rekappa.spark.plans.ranges import TimeRange, time_range
from rekappa.spark.plans.times import Spread, Times, overall, read
from rekappa.spark.plans.tree import Expression, Node
from rekappa.timeline import format_duration

CUSTOM = {
    "TransformWithState", "TransformWithStateInPandas", "TransformWithStateInPySpark", "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
}  # fmt: skip
_ORDER = {"First", "Last", "CollectList", "ListAgg"}
_OUTPUTS = ("output", "outputAttrs", "outAttributes", "outputAttributes", "outputAttr")
_LIMITS = {"GlobalLimit", "LocalLimit", "Offset", "Tail"}


@dataclass(frozen=True, slots=True)
class Rows:
    """What comes out of one node: its attributes in order, and the times among them."""

    attributes: tuple[Expression, ...]
    times: Times
    streaming: bool

    @property
    def ids(self) -> set[int]:
        return {attribute.id for attribute in self.attributes if attribute.id is not None}


@dataclass(slots=True)
class Walk:
    """`event_times` names, per source, the column that holds an event's own time."""

    event_times: Mapping[str, str]
    sources: Mapping[str, str]
    operators: list[Operator] = field(default_factory=list)
    static: list[str] = field(default_factory=list)
    watermarked: dict[str, str] = field(default_factory=dict)

    def rows(self, node: Node) -> Rows:
        inputs = [self.rows(child) for child in node.children]
        if not inputs:
            return self._leaf(node)
        if node.name == "Join":
            return self._join(node, *inputs)
        if node.name == "Union":
            return _union(inputs)
        one = inputs[0]
        if node.name in CUSTOM:
            self.operators.append(Operator(Kind.CUSTOM, node.name))
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
        return Rows(produced, {key: span for key, span in one.times.items() if key in _ids(produced)}, one.streaming)

    def _leaf(self, node: Node) -> Rows:
        attributes = node.of("output")
        streaming = node.name.startswith("StreamingRelation") or bool(node.fields.get("isStreaming"))
        if not streaming:
            if node.name not in ("OneRowRelation", "LocalRelation", "Range"):
                self.static.append(_table_name(node))
            return Rows(attributes, {}, streaming=False)
        source = self.source_of(node)
        column = self.event_times.get(source)
        times: Times = {one.id: Span() for one in attributes if one.id is not None and one.fields["name"] == column}
        return Rows(attributes, times, streaming=True)

    def source_of(self, leaf: Node) -> str:
        """The source whose probe this leaf reads."""
        name = str(leaf.fields.get("sourceName", ""))
        return next((source for path, source in self.sources.items() if path in name), "")

    def _watermark(self, node: Node, one: Rows) -> Rows:
        column = node.of("eventTime")[0]
        times = dict(one.times)
        if column.id is not None:
            times.setdefault(column.id, Span())
        leaves = [leaf for leaf in node.walk() if leaf.name.startswith("StreamingRelation")]
        for leaf in leaves:
            self.watermarked[str(node.fields["nodeId"])] = self.source_of(leaf)
        return Rows(one.attributes, times, one.streaming)

    def _note(self, node: Node, one: Rows) -> None:
        """Operators that leave the times as they are."""
        if node.name in ("Deduplicate", "Distinct"):
            keys = {key.id for key in node.of("keys")} or one.ids
            if keys >= one.ids:
                kind = Kind.WHOLE_ROW_DEDUP
            else:
                kind = Kind.TIMED_DEDUP if keys & one.times.keys() else Kind.OPEN_DEDUP
            self.operators.append(Operator(kind, _names(node.of("keys"))))
        elif node.name == "DeduplicateWithinWatermark":
            self.operators.append(Operator(Kind.DEDUP_WITHIN, _names(node.of("keys"))))
        elif node.name in _LIMITS:
            if not any(operator.kind is Kind.LIMIT for operator in self.operators):
                self.operators.append(Operator(Kind.LIMIT))
        elif node.name == "Sort" and node.fields.get("global"):
            self.operators.append(Operator(Kind.SORT))

    def _aggregate(self, node: Node, one: Rows) -> Rows:
        made = node.of("aggregateExpressions")
        if not one.streaming:
            return Rows(made, {}, streaming=False)
        keys = [found for key in node.of("groupingExpressions") if (found := read(key, one.times)) is not None]
        windows = [key for key in keys if isinstance(key, Spread)]
        if windows:
            window = windows[0]
            kind = Kind.SESSION if window.session else Kind.WINDOW
            words = format_duration(window.length) if window.length is not None else "a gap computed per row"
            self.operators.append(Operator(kind, words, window.length))
        elif keys:
            self.operators.append(Operator(Kind.TIME_GROUP))
        else:
            self.operators.append(Operator(Kind.AGGREGATE, _names(node.of("groupingExpressions"))))
        order = {part.name for part in node.all_expressions() if part.name in _ORDER}
        if order:
            self.operators.append(Operator(Kind.ORDER_SENSITIVE, ", ".join(sorted(order))))
        if not keys:
            return Rows(made, {}, streaming=True)
        whole = keys[0].start if isinstance(keys[0], Spread) else keys[0]
        either = Reach(overall(whole), (*whole.before.why, *whole.after.why), whole.before.open or whole.after.open)
        times: Times = {}
        for expression in made:
            if expression.id is None:
                continue
            inside = next((part for part in expression.walk() if part.name == "AggregateExpression"), None)
            if inside is None:
                found = read(expression, one.times)
            else:
                timed = any(read(part, one.times) for part in inside.walk() if part.name == "AttributeReference")
                plain = any(part.name in ("Max", "Min", "First", "Last") for part in inside.walk())
                found = Span(either, either) if timed and plain else None
            if found is not None:
                times[expression.id] = found
        return Rows(made, times, streaming=True)

    def _join(self, node: Node, left: Rows, right: Rows) -> Rows:
        kind = str(node.fields.get("joinType", {}))
        one_sided = "LeftSemi" in kind or "LeftAnti" in kind
        attributes = left.attributes if one_sided else left.attributes + right.attributes
        if not (left.streaming and right.streaming):
            return Rows(attributes, left.times | right.times, left.streaming or right.streaming)
        word = kind.rsplit(".", 1)[-1].strip("'}$ ")
        both = left.times | right.times
        condition = node.of("condition")
        found = time_range(condition[0], left.ids, right.ids, both) if condition else None
        if found is None:
            self.operators.append(Operator(Kind.OPEN_JOIN, word))
            return Rows(attributes, {}, streaming=True)
        width = max(abs(found.low), abs(found.high))
        detail = f"{word}, {_signed(found.low)} to {_signed(found.high)}"
        self.operators.append(Operator(Kind.JOIN, detail, width))
        return Rows(attributes, _joined(found, left.times, right.times), streaming=True)


def _joined(found: TimeRange, left: Times, right: Times) -> Times:
    """Every time of either side now has inputs of both sides behind it."""
    first, second = _span(read(found.left, left)), _span(read(found.right, right))
    times: Times = {}
    for key, span in left.items():
        times[key] = _across(span, first, second, found.low, found.high)
    for key, span in right.items():
        times[key] = _across(span, second, first, -found.high, -found.low)
    return times


def _across(own: Span | Spread, anchor: Span, other: Span, low: timedelta, high: timedelta) -> Span | Spread:
    """The span of one side's time, given that the other side's anchor is [low, high] away from this side's."""
    if isinstance(own, Spread):
        return Spread(_reaching(own.start, anchor, other, low, high), _reaching(own.end, anchor, other, low, high),
                      own.length, own.session)  # fmt: skip
    return _reaching(own, anchor, other, low, high)


def _reaching(own: Span, anchor: Span, other: Span, low: timedelta, high: timedelta) -> Span:
    if own != anchor:
        # Two times of one row, both near the same inputs: the way to the anchor leads over those.
        low, high = low - own.before.length - anchor.after.length, high + own.after.length + anchor.before.length
    before = other.before.plus(ZERO - low, "join range")
    after = other.after.plus(high, "join range")
    return own.covering(Span(before, after))


def _span(found: Span | Spread | None) -> Span:
    if isinstance(found, Spread):
        return found.start
    return found or Span()


def _signed(value: timedelta) -> str:
    return ("+" if value >= ZERO else "") + format_duration(value)


def _union(inputs: list[Rows]) -> Rows:
    first = inputs[0]
    times: Times = {}
    for position, attribute in enumerate(first.attributes):
        spans = [rows.times.get(rows.attributes[position].id or -1) for rows in inputs if rows.streaming]
        plain = [span for span in spans if isinstance(span, Span)]
        if attribute.id is not None and plain and len(plain) == len(spans):
            merged = plain[0]
            for span in plain[1:]:
                merged = merged.covering(span)
            times[attribute.id] = merged
    return Rows(first.attributes, times, any(rows.streaming for rows in inputs))


def _projected(node: Node, one: Rows) -> Rows:
    if node.name == "Project":
        made = node.of("projectList")
        found = {item.id: span for item in made if item.id is not None and (span := read(item, one.times)) is not None}
        return Rows(made, found, one.streaming)
    made = node.of("output")
    first = node.of("projections")[: len(made)]
    times = {
        attribute.id: span
        for attribute, value in zip(made, first, strict=False)
        if attribute.id is not None and (span := read(value, one.times)) is not None
    }
    return Rows(made, times, one.streaming)


def _output(node: Node, one: Rows) -> tuple[Expression, ...]:
    if node.name == "Generate":
        return one.attributes + node.of("generatorOutput")
    return next((node.of(name) for name in _OUTPUTS if node.of(name)), one.attributes)


def _ids(attributes: tuple[Expression, ...]) -> set[int]:
    return {attribute.id for attribute in attributes if attribute.id is not None}


def _names(expressions: tuple[Expression, ...]) -> str:
    return ", ".join(str(expression.fields.get("name", expression.name)) for expression in expressions)


def _table_name(node: Node) -> str:
    identifier = node.fields.get("identifier") or node.fields.get("catalogTable") or node.name
    if isinstance(identifier, dict):
        identifier = identifier.get("name") or identifier.get("identifier", {}).get("table") or node.name
    return str(identifier)
