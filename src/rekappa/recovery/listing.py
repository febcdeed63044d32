"""What `rekappa checkpoints` shows: every restart point of a run's queries, with what it stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from rekappa.checkpoints.restarts import Leg, Restart, line_of, output_of, restarts
from rekappa.checkpoints.savepoints import savepoints
from rekappa.home import Home
from rekappa.spark.offsetlog import LoggedBatch, logged_batch
from rekappa.store.record import Run
from rekappa.store.runs import RunStore


@dataclass(frozen=True, slots=True)
class KnownPoint:
    """A restart point as people see it. `offsets` is each source's end, as Spark logged it."""

    run: str
    query: str
    batch: int
    committed: datetime
    watermark: datetime | None
    offsets: tuple[str | None, ...]
    state: int
    restorable: bool
    lacking: tuple[str, ...]
    savepoint: str | None


def queries_of(store: RunStore, run: Run) -> tuple[str, ...]:
    """The names of the queries that the run was made with, or has gained since."""
    return tuple(sorted({*(run.spec.get("targets") or ()), *(start.query for start in store.starts(run.id))}))


def line(store: RunStore, run: Run, query: str) -> tuple[Leg, ...]:
    """The parts of runs that a query's state is made of, newest first."""
    return line_of(run.id, query, _spec_of(store, run))


def output_line(store: RunStore, run: Run, query: str) -> tuple[Leg, ...]:
    """The parts of runs that a query's output is made of, newest first: also of the run that a bootstrapped one carries
    on, whose state it has not."""
    return output_of(run.id, query, _spec_of(store, run))


def _spec_of(store: RunStore, run: Run) -> Callable[[str], Mapping[str, Any]]:
    return lambda name: run.spec if name == run.id else store.run(name).spec


def query_restarts(home: Home, store: RunStore, run: Run, *, verify: bool = False) -> dict[str, tuple[Restart, ...]]:
    """Where each query of the run can be restarted, oldest first."""
    kept = savepoints(home, run.app)
    return {
        query: _timed(store, restarts(home, run.app, query, line(store, run, query), kept, verify=verify))
        for query in queries_of(store, run)
    }


def _timed(store: RunStore, found: Sequence[Restart]) -> tuple[Restart, ...]:
    """Each with the time of its commit as the store has it: a file that was copied, by a restore or into an object
    store, tells only of the copy."""
    firsts: dict[tuple[str, str], int] = {}
    for one in found:
        firsts[one.run, one.query] = min(one.point.batch, firsts.get((one.run, one.query), one.point.batch))
    times = {own: store.commit_times(*own, first) for own, first in firsts.items()}
    return tuple(
        replace(one, point=replace(one.point, committed=moment))
        if (moment := times[one.run, one.query].get(one.point.batch)) is not None
        else one
        for one in found
    )


def known_points(home: Home, store: RunStore, run: Run, *, verify: bool = False) -> tuple[KnownPoint, ...]:
    found = query_restarts(home, store, run, verify=verify)
    return tuple(_known(one) for each in found.values() for one in each)


def _known(one: Restart) -> KnownPoint:
    logged, point = _logged(one), one.point
    return KnownPoint(
        run=one.run,
        query=one.query,
        batch=point.batch,
        committed=point.committed,
        watermark=logged.watermark if logged else None,
        offsets=logged.sources if logged else (),
        state=point.state,
        restorable=point.restorable and logged is not None,
        lacking=point.lacking if logged or point.lacking else (f"offsets/{point.batch} (unreadable)",),
        savepoint=one.savepoint,
    )


def _logged(one: Restart) -> LoggedBatch | None:
    try:
        return logged_batch(one.folder, one.point.batch)
    except FileNotFoundError:
        return None
