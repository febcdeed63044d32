"""What a job's query is made of, as far as replaying it goes. Pure values; `rekappa.spark.analysis` makes them.

A `Span` is the heart of it: how far the event times of the inputs behind one output row can lie from the
event time that the sink declares for that row. Warm-up, drain and the state's size follow from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, StrEnum

from rekappa.timeline import format_duration

ZERO = timedelta()


@dataclass(frozen=True, slots=True)
class Reach:
    """A distance in event time and the words for where it comes from. `open` when nothing bounds it."""

    length: timedelta = ZERO
    why: tuple[str, ...] = ()
    open: bool = False

    def plus(self, length: timedelta, why: str = "") -> Reach:
        """This distance and some more; `why` is left out when the distance grows by nothing."""
        words = (*self.why, f"{format_duration(length)} {why}") if why and length > ZERO else self.why
        return Reach(self.length + length, words, self.open)

    def then(self, other: Reach) -> Reach:
        """Both distances, one after the other."""
        return Reach(self.length + other.length, self.why + other.why, self.open or other.open)

    def or_farther(self, other: Reach) -> Reach:
        """The greater of two distances; open if either is."""
        greater = self if self.length >= other.length else other
        return Reach(greater.length, greater.why, self.open or other.open)

    @property
    def clamped(self) -> timedelta:
        return max(self.length, ZERO)


@dataclass(frozen=True, slots=True, order=True)
class Anchor:
    """A column of a source that times are read from; fields of a struct are written with a dot.

    The ingestion time is an anchor like any other: `__metadata__.kafka_ingestion_ts`. A column that holds no
    time (text that the job parses, say) is one too, if a watermark or the sink's time is computed from it.
    """

    source: str
    column: str


@dataclass(frozen=True, slots=True)
class Span:
    """Inputs behind a row whose time is t have times in [t - before, t + after], by the columns in `anchors`.

    `known` is False where that can't be told: t is computed in a way that is not understood, or read from another
    column than the one by which inputs were put together (the latest expiry among the events of an hour), so that what
    is near in the one may be far in the other.
    """

    before: Reach = field(default_factory=Reach)
    after: Reach = field(default_factory=Reach)
    anchors: frozenset[Anchor] = frozenset()
    known: bool = True

    def covering(self, other: Span) -> Span:
        before, after = self.before.or_farther(other.before), self.after.or_farther(other.after)
        return Span(before, after, self.anchors | other.anchors, self.known and other.known)


class Tolerance(StrEnum):
    """How a column is to be compared that no replay gives exactly: it is equal only up to this."""

    ORDER = "order"
    """An array with the same elements, whatever their order."""
    ROUNDING = "rounding"
    """A number computed from floating-point numbers, which add up differently in another order."""


class Operation(Enum):
    """The operators that matter: all but the last four keep state."""

    WINDOW = "window aggregate"
    SESSION = "session window"
    TIME_GROUP = "aggregate by event time"
    AGGREGATE = "aggregate without a window"
    JOIN = "join within a time range"
    OPEN_JOIN = "join without a time range"
    WHOLE_ROW_DEDUP = "de-duplication of whole rows"
    TIMED_DEDUP = "de-duplication by some columns and a time"
    OPEN_DEDUP = "de-duplication by some columns, for ever"
    DEDUP_WITHIN = "de-duplication within the watermark"
    CUSTOM = "custom state"
    LIMIT = "limit"
    SORT = "sort"
    AS_STREAMED = "join that a stream makes in a way of its own"
    ORDER_SENSITIVE = "aggregate that depends on order"
    UNKNOWN = "something not known to be safe"

    @property
    def stateful(self) -> bool:
        return self not in (Operation.SORT, Operation.AS_STREAMED, Operation.ORDER_SENSITIVE, Operation.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of the query. `length` is its window, gap or join range where it has one."""

    kind: Operation
    detail: str = ""
    length: timedelta | None = None

    def __str__(self) -> str:
        return f"{self.kind.value} ({self.detail})" if self.detail else self.kind.value


class Keeps(Enum):
    """Which rows of an output its sink keeps."""

    EVERY = "every row"
    LAST = "the last row of a key"
    NEWEST = "the row of a key that has the highest version"


@dataclass(frozen=True, slots=True)
class Taken:
    """How a sink takes an output. `updates` says that a row is written again whenever it changes (update mode)."""

    keeps: Keeps = Keeps.EVERY
    updates: bool = False
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Revised:
    """What an aggregate computes, and so changes from one version of its row to the next.

    `columns` are those of the output; `decide` says that such values choose which rows come out at all.
    """

    columns: tuple[str, ...] = ()
    decide: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """One output of one job. `operators` are in the order of the data's flow, sources first.

    `span` is None when the sink's event time can't be traced back to the sources' event times.
    `delay` is the greatest watermark delay, None without a watermark. `columns` names the top-level columns
    that are used of each source; `metadata` the fields used of `__metadata__`. `static` are the tables joined
    as they are now, not as they were then. `anchors` are the columns that the sink's event time, watermarks,
    windows and join ranges go by: how far they lie from the ingestion time decides what has to be read.
    `tolerances` names the output's columns that are equal only up to order or rounding. `made` are all its columns.
    `obstacle` is what keeps a job that depends on order from going slice by slice in bulk, as the job itself shows.
    """

    output: str
    operators: tuple[Operator, ...] = ()
    span: Span | None = field(default_factory=Span)
    delay: timedelta | None = None
    watermarks: Mapping[str, timedelta] = field(default_factory=dict)
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    metadata: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    clock: tuple[str, ...] = ()
    random: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    event_time: str | None = None
    made: tuple[str, ...] = ()
    anchors: tuple[Anchor, ...] = ()
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    revised: Revised = Revised()
    taken: Taken = Taken()
    obstacle: str = ""

    @property
    def stateful(self) -> bool:
        return any(operator.kind.stateful for operator in self.operators)

    def has(self, *kinds: Operation) -> bool:
        return any(operator.kind in kinds for operator in self.operators)

    def of(self, *kinds: Operation) -> tuple[Operator, ...]:
        return tuple(operator for operator in self.operators if operator.kind in kinds)

    @property
    def lengths(self) -> timedelta:
        """All windows, gaps and join ranges together: no bounded span is longer."""
        return sum((operator.length or ZERO for operator in self.operators), ZERO)

    def describe(self) -> str:
        return ", then ".join(str(operator) for operator in self.operators) or "no state"
