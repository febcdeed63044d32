"""Who reads what whom writes: chained queries as a graph. Pure.

order = downstream(flows, roots)      a query comes after all that it reads from
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rekappa.errors import RunError
from rekappa.plan.offsets import Position
from rekappa.timeline import format_instant


@dataclass(frozen=True, slots=True, order=True)
class ChainedQuery:
    """One query of one app."""

    app: str
    query: str

    def __str__(self) -> str:
        return f"{self.app}/{self.query}"


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """One query writes a topic that another one reads, as this source, in this region."""

    writer: ChainedQuery
    topic: str
    reader: ChainedQuery
    source: str
    region: str

    def position(self, partition: int) -> Position:
        """A partition of the topic, as the reader knows it."""
        return Position(self.source, self.region, self.topic, partition)


def downstream(flows: Iterable[Flow], roots: Sequence[ChainedQuery]) -> tuple[ChainedQuery, ...]:
    """The roots and all that read from them, at once or through others; each after all that it reads from among these.

    Refuses a cycle, naming it.
    """
    followers: dict[ChainedQuery, list[ChainedQuery]] = {}
    for flow in flows:
        followers.setdefault(flow.writer, []).append(flow.reader)
    done: dict[ChainedQuery, None] = {}

    def visit(node: ChainedQuery, above: tuple[ChainedQuery, ...]) -> None:
        if node in above:
            ring = " -> ".join(str(one) for one in (*above[above.index(node) :], node))
            raise RunError(
                f"Cannot rewind in order: what is written comes back to its writer, {ring}",
                hint="Nobody can tell which messages of a circle came first. Rewind with --no-state, or bootstrap.",
            )
        if node not in done:
            for reader in sorted(set(followers.get(node, ()))):
                visit(reader, (*above, node))
            done[node] = None

    for root in reversed(roots):
        visit(root, ())
    return tuple(reversed(done))


@dataclass(frozen=True, slots=True)
class FirstAbandoned:
    """From where on a partition's messages may be abandoned: `offset` is the first that is.

    `since` is said where Kafka no longer has the first of them: none was sent before then.
    """

    offset: int
    since: datetime | None = None

    def joined(self, other: FirstAbandoned) -> FirstAbandoned:
        """Both: what two writers have sent."""
        known = [one.since for one in (self, other) if one.since is not None]
        return FirstAbandoned(min(self.offset, other.offset), min(known, default=None))

    def __str__(self) -> str:
        if self.since is None:
            return f"offset {self.offset}"
        return f"{format_instant(self.since)}, as Kafka has dropped messages before offset {self.offset},"


Limits = Mapping[Position, FirstAbandoned]
"""What a query must not have read, by partition."""


def before(limits: Limits, ends: Mapping[Position, int], committed: datetime) -> bool:
    """Whether a point that has read up to these ends, and was committed then, has read nothing that is abandoned."""
    return all(
        ends.get(at, 0) <= first.offset and (first.since is None or committed <= first.since or not ends.get(at, 0))
        for at, first in limits.items()
    )


def drawn(flows: Collection[Flow], order: Sequence[ChainedQuery], told: Callable[[ChainedQuery], str]) -> Iterator[str]:
    """The graph as text: every query once in full, below what it reads from; then by its name alone."""
    read = {flow.reader for flow in flows if flow.writer != flow.reader}
    shown: set[ChainedQuery] = set()

    def branch(node: ChainedQuery, lead: str, here: str, via: str) -> Iterator[str]:
        again = node in shown
        shown.add(node)
        yield f"{here}{via}{node}" + ("  (above)" if again else f"  {told(node)}")
        if again:
            return
        own = sorted({(flow.topic, flow.reader) for flow in flows if flow.writer == node})
        for number, (topic, reader) in enumerate(own):
            last = number == len(own) - 1
            mark, below = ("└─ ", "   ") if last else ("├─ ", "│  ")
            yield from branch(reader, lead + below, lead + mark, f"{topic} → ")

    for node in order:
        if node not in read:
            yield from branch(node, "", "", "")
