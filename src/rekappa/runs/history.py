"""The history that a bootstrapped run reads before it goes live, kept in its folder and never changed.

Where each query goes from history to live is fixed before anything runs: which batches belong to history is then told
by Spark's own log alone, however often the run is killed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rekappa.errors import RunError
from rekappa.plan.catch_up import EndOffsets
from rekappa.plan.offsets import Position
from rekappa.replay.batches import Feed, positions
from rekappa.spark.offsetlog import read_batch
from rekappa.storage.location import Location
from rekappa.timeline import format_instant, parse_instant

FILE = "history.json"
VERSION = 1


@dataclass(frozen=True, slots=True)
class History:
    """`starts` is where all queries begin, `until` where each of them, by its name, has read its history.

    With `held`, what a query writes until then is held back. `closed` are the queries for which Spark shall let state
    go at the end of history, as it does when no more events come: those whose earlier run had done so there.
    """

    since: datetime
    starts: EndOffsets
    until: Mapping[str, EndOffsets]
    held: bool = True
    closed: frozenset[str] = field(default_factory=frozenset)
    allow_gaps: bool = False

    def save(self, folder: Location) -> None:
        told = {
            "version": VERSION,
            "since": format_instant(self.since),
            "starts": _listed(self.starts),
            "until": {query: _listed(ends) for query, ends in self.until.items()},
            "held": self.held,
            "closed": sorted(self.closed),
            "allow_gaps": self.allow_gaps,
        }
        (folder / FILE).write(json.dumps(told))

    @classmethod
    def load(cls, folder: Location) -> History | None:
        """What the run was told; None for one that was not bootstrapped."""
        path = folder / FILE
        if not path.exists():
            return None
        told = json.loads(path.read_text())
        if told["version"] != VERSION:
            raise RunError(f"Cannot read {path}: its version is {told['version']}, this rekappa knows {VERSION}")
        until = {query: _ends(listed) for query, listed in told["until"].items()}
        held, closed = told["held"], frozenset(told["closed"])
        return cls(parse_instant(told["since"]), _ends(told["starts"]), until, held, closed, told["allow_gaps"])

    def holds_back(self, query: str, checkpoint: Location, order: Sequence[Feed], number: int) -> bool:
        """Whether what batch `number` of the query gives is history, and not to be written."""
        until = self.until.get(query, {})
        if not self.held or not until:
            return False
        return all(end <= until.get(at, 0) for at, end in reached(checkpoint, number, order).items())


def reached(checkpoint: Location, number: int, order: Sequence[Feed]) -> dict[Position, int]:
    """Where a batch ends by the log; of a source that the query reads in several places, where the last of them is."""
    found: dict[Position, int] = {}
    for one in positions(read_batch(checkpoint, number).sources, order):
        for partition, end in one.ends.items():
            at = Position(one.source, one.region, one.topic, partition)
            found[at] = min(end, found.get(at, end))
    return found


def _listed(ends: EndOffsets) -> list[list[Any]]:
    return [[*at, end] for at, end in sorted(ends.items())]


def _ends(listed: Sequence[Sequence[Any]]) -> dict[Position, int]:
    return {Position(source, region, topic, int(number)): int(end) for source, region, topic, number, end in listed}
