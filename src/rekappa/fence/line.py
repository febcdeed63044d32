"""The fence around what a topic holds: a message counts if it is on the line of the writer that sent it. Pure.

    sent by live_1      0 1 2 3 4 5 | 6 7 8          rewound to batch 5: 6, 7 and 8 no longer count
    sent by live_2                    6 7 8 9 …      the run that goes on

Every message of a Kafka sink says in its headers which run, query and batch sent it; one without such headers counts.
A rewind wipes nothing: it draws a new line, and readers drop what is not on it, also what a dead process still sends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from rekappa.checkpoints.restarts import Leg
from rekappa.errors import SourceError

RUN, QUERY, BATCH = "rekappa-run", "rekappa-query", "rekappa-batch"
"""The headers of a message that a Kafka sink sent."""
NOTHING = -1
VERSION = 1

Sender = tuple[str, str]
"""A run, and the query of it that sends."""


@dataclass(frozen=True, slots=True)
class WriterLine:
    """What counts of one writer, a query of an app: of each run up to which batch. None is all of it.

    A run that is not named here has nothing abandoned.
    """

    app: str
    query: str
    until: Mapping[str, int | None] = field(default_factory=dict)

    def abandoned(self, legs: Iterable[Leg], goes_on: str) -> WriterLine:
        """The line once these batches no longer count and another run goes on. May be repeated."""
        until = dict(self.until)
        for leg in legs:
            before = until.get(leg.run)
            until[leg.run] = leg.after if before is None else min(before, leg.after)
        return replace(self, until={**until, goes_on: None})

    def restored(self, legs: Iterable[Leg], went_on: str) -> WriterLine:
        """The line once these batches count again, and nothing of the run that went on. May be repeated."""
        return replace(self, until={**self.until, **{leg.run: leg.until for leg in legs}, went_on: NOTHING})


@dataclass(frozen=True, slots=True)
class Fence:
    """What counts of one topic: the lines of its writers, and the senders that have announced themselves."""

    lines: tuple[WriterLine, ...] = ()
    begun: frozenset[Sender] = frozenset()

    def line(self, app: str, query: str) -> WriterLine:
        """The writer's line; one along which everything counts, if none was drawn."""
        found = [one for one in self.lines if (one.app, one.query) == (app, query)]
        return found[0] if found else WriterLine(app, query)

    @property
    def limits(self) -> Mapping[Sender, int | None]:
        """Of every sender that is known, up to which batch its messages count. What a line says goes first."""
        drawn = {(run, line.query): until for line in self.lines for run, until in line.until.items()}
        return MappingProxyType({**dict.fromkeys(self.begun), **drawn})

    @property
    def abandons(self) -> bool:
        """Whether anything does not count."""
        return any(until is not None for until in self.limits.values())

    def counts(self, run: str | None, query: str | None, batch: int | None) -> bool | None:
        """Whether a message with these headers counts; None for a sender that nobody has heard of."""
        if run is None or query is None or batch is None:
            return True
        limits = self.limits
        if (run, query) not in limits:
            return None
        until = limits[run, query]
        return until is None or batch <= until

    def joined(self, other: Fence) -> Fence:
        """Both: a source of several clusters reads one topic on each."""
        return Fence((*self.lines, *other.lines), self.begun | other.begun)


Message = tuple[str, str]
"""Key and value, as they stand in the lineage topic: the newest of each key counts."""


def line_message(topic: str, line: WriterLine) -> Message:
    key = {"topic": topic, "app": line.app, "query": line.query}
    return _text(key), _text({"version": VERSION, "until": dict(line.until)})


def begun_message(topic: str, sender: Sender) -> Message:
    """A key of its own: whoever announces himself late, a dead process even, does not overwrite a line."""
    return _text({"topic": topic, "run": sender[0], "query": sender[1]}), _text({"version": VERSION})


def fences(messages: Iterable[Message]) -> dict[str, Fence]:
    """What the lineage topic says of every topic; refuses a version that is not known."""
    found: dict[str, Fence] = {}
    for key, value in dict(messages).items():
        told, said = json.loads(key), json.loads(value)
        if said["version"] > VERSION:
            raise SourceError(f"Cannot read a line of version {said['version']}: this rekappa knows {VERSION}")
        fence = found.get(told["topic"], Fence())
        if "run" in told:
            fence = replace(fence, begun=fence.begun | {(told["run"], told["query"])})
        else:
            fence = replace(fence, lines=(*fence.lines, WriterLine(told["app"], told["query"], said["until"])))
        found[told["topic"]] = fence
    return found


def _text(value: Mapping[str, object]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
