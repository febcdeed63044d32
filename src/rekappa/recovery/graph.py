"""Who reads what whom writes: chained queries as a graph. Pure.

order = downstream(flows, roots)      a query comes after all that it reads from
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rekappa.errors import RunError
from rekappa.plan.offsets import Position


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


def before(limits: Mapping[Position, int], ends: Mapping[Position, int]) -> bool:
    """Whether a point that has read up to these ends has read nothing from these limits on."""
    return all(ends.get(at, 0) <= first for at, first in limits.items())


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
