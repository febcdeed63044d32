"""Where a query can be restarted: the batches on its line, in the checkpoints of its runs and in savepoints.

A rewound run is a fork of an earlier one. Its line is what counts of both: the earlier one up to the fork, then its own
batches. Of the earlier run, what comes after the fork was abandoned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rekappa.checkpoints.files import listed, named_in
from rekappa.checkpoints.points import RestartPoint, restart_points
from rekappa.checkpoints.savepoints import Savepoint
from rekappa.home import Home
from rekappa.storage.location import Location

CARRIES_ON = "after"
"""In the spec of a bootstrapped run: {query: the run whose output it carries on}."""
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
    """The legs that a query's state is made of, newest first, and its output since that began."""
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


def output_of(run: str, query: str, spec_of: Callable[[str], Mapping[str, Any]]) -> tuple[Leg, ...]:
    """The legs that a query's output is made of, newest first."""
    legs = line_of(run, query, spec_of)
    before = spec_of(legs[-1].run).get(CARRIES_ON, {}).get(query)
    return legs if before is None else (*legs, *output_of(before, query, spec_of))


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
    found: list[Restart] = []
    for leg in line:
        here = home.checkpoint(app, leg.run) / query
        found += [Restart(leg.run, query, point, here) for point in _points(here, verify) if leg.holds(point.batch)]
        for one in kept:
            if one.run == leg.run and leg.holds(one.batches.get(query, -1)):
                place = home.savepoints(app) / one.name / query
                # A file that was copied is younger than what it is a copy of.
                points = [replace(point, committed=one.committed[query]) for point in _points(place, verify)]
                found += [Restart(leg.run, query, point, place, one.name) for point in points]
    return tuple(sorted(found, key=lambda one: (one.point.batch, one.savepoint or "")))


def _points(folder: Location, verify: bool) -> tuple[RestartPoint, ...]:
    return restart_points(listed(folder), named_in(folder) if verify else None)
