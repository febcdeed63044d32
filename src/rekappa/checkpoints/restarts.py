"""Where a query can be restarted: the batches on its line, in the checkpoints of its runs and in savepoints.

A rewound run is a fork of an earlier one. Its line is what counts of both: the earlier one up to the fork, then its own
batches. Of the earlier run, what comes after the fork was abandoned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rekappa.checkpoints.files import listed, named_in
from rekappa.checkpoints.points import RestartPoint, restart_points
from rekappa.checkpoints.savepoints import Savepoint
from rekappa.home import Home
from rekappa.storage.location import Location

FORK = "forked_from"
"""In the spec of a rewound run: {query: {"run": ID, "batch": the last one that counts}}, for each query with state."""


@dataclass(frozen=True, slots=True)
class Leg:
    """The batches of one run that count: those after `after`, up to `until` (None: to the end)."""

    run: str
    after: int
    until: int | None

    def holds(self, batch: int) -> bool:
        return self.after < batch and (self.until is None or batch <= self.until)


@dataclass(frozen=True, slots=True)
class Restart:
    """One point and the folder of the query's checkpoint that holds it; `savepoint` is the one it is kept by."""

    run: str
    query: str
    point: RestartPoint
    folder: Location
    savepoint: str | None = None


def line_of(run: str, query: str, spec_of: Callable[[str], Mapping[str, Any]]) -> tuple[Leg, ...]:
    """The legs that a query's output and state are made of, newest first."""
    legs: list[Leg] = []
    until: int | None = None
    here: str | None = run
    while here is not None:
        fork = spec_of(here).get(FORK, {}).get(query)
        after = -1 if fork is None else int(fork["batch"])
        if until is None or until > after:
            legs.append(Leg(here, after, until))
            until = after
        here = None if fork is None else fork["run"]
    return tuple(legs)


def abandoned_by(line: Iterable[Leg], run: str, batch: int) -> tuple[Leg, ...]:
    """What no longer counts once the query goes on after a batch of one of its runs; newest first."""
    gone: list[Leg] = []
    for leg in line:
        if leg.run == run:
            return (*gone, Leg(run, max(batch, leg.after), leg.until))
        gone.append(leg)
    return tuple(gone)


def restarts(
    home: Home, app: str, query: str, line: Iterable[Leg], kept: Iterable[Savepoint], *, verify: bool = False
) -> tuple[Restart, ...]:
    """Every committed batch on the line that is still known, oldest first; one that is kept twice is named twice.

    `verify` opens RocksDB's snapshots and looks for the files that they name.
    """
    found = []
    for leg in line:
        places: list[tuple[Location, str | None]] = [(home.checkpoint(app, leg.run) / query, None)]
        places += [(home.savepoints(app) / one.name / query, one.name) for one in kept if one.run == leg.run]
        for folder, name in places:
            points = restart_points(listed(folder), named_in(folder) if verify else None)
            found += [Restart(leg.run, query, point, folder, name) for point in points if leg.holds(point.batch)]
    return tuple(sorted(found, key=lambda one: (one.point.batch, one.savepoint or "")))
