"""Rewinding a live job: it goes on as a new run, a fork of an earlier point, and its sinks hold what they held there.

    live = LiveApp(spark, home, loaded, app)
    plan = plan_rewind(live, ToTime(moment))     nothing is touched
    rewind(live, plan)

The order makes it repeatable. The fork is built beside everything else. Then one transaction of the run store
abandons the old run and makes the new one, not yet ready: from here on only this operation can go on, and `resume`
completes it. Then each sink is reset, each in a step that is not done twice; then the new run is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from rekappa.app import App
from rekappa.checkpoints.fork import files_of, fork
from rekappa.checkpoints.restarts import FORK, Restart, abandoned_by
from rekappa.config.bind import Query, queries
from rekappa.config.load import Loaded
from rekappa.config.targets import target_of
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.plan.coverage import Want, dropped
from rekappa.plan.offsets import Position
from rekappa.planning.catch_up import kept_by_kafka
from rekappa.recovery.choose import NoState, ToBatch, ToNewest, ToSavepoint, ToTime, Wanted, choose
from rekappa.recovery.listing import line, query_restarts
from rekappa.recovery.plan import QueryRewind, RewindPlan, planned_again
from rekappa.recovery.preflight import preflight
from rekappa.recovery.resets.choose import resetter
from rekappa.recovery.resets.contract import Abandoned, Resetter
from rekappa.runs.current import (
    OPEN,
    REWIND,
    UNDOING,
    asked_of,
    current_run,
    live_lease,
    require_same_sources,
    require_settled,
)
from rekappa.runs.history import History
from rekappa.runs.live_run import LiveRun
from rekappa.sinks.registry import open_sink
from rekappa.store.record import Kind, Run, new_run_id
from rekappa.store.runs import RunStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tell = Callable[[str], None]
SLACK = timedelta(seconds=5)
"""A commit to a sink is stamped by a clock that may be this far from that of the file system."""


@dataclass(frozen=True)
class LiveApp:
    """An app as its live job runs it, with what it takes to change that."""

    spark: SparkSession
    home: Home
    loaded: Loaded
    app: App

    @property
    def store(self) -> RunStore:
        return RunStore.existing(self.home)

    @property
    def queries(self) -> tuple[Query, ...]:
        return queries(self.loaded.config, self.app)

    @contextmanager
    def alone(self, doing: str) -> Iterator[RunStore]:
        """Nothing else writes the app's sinks meanwhile, nor rewinds it."""
        store, name = self.store, self.loaded.config.app
        with store.claim([live_lease(self.loaded, query) for query in self.queries], f"{doing} {name!r}"):
            yield store

    def resetter(self, operation: str, query: Query, part: QueryRewind, *, send_again: bool) -> Resetter:
        """The way back of the query's sink."""
        config = self.loaded.config
        target = target_of(config.sinks[query.sink])
        gone = Abandoned(self.spark, operation, query.sink, target, query.name, part.abandoned, part.dead, part.since)
        return resetter(gone, open_sink(query.sink, config, self.home), send_again=send_again)

    def resetters(self, plan: RewindPlan) -> Iterator[tuple[QueryRewind, Resetter]]:
        """Those of a plan that was agreed to, for the queries that the app still has."""
        parts = {part.query: part for part in plan.queries}
        for query in self.queries:
            if query.name in parts:
                part = parts[query.name]
                yield part, self.resetter(plan.operation, query, part, send_again=True)


def plan_rewind(live: LiveApp, wanted: Wanted, *, send_again: bool = False) -> RewindPlan:
    """Everything that a rewind would do, tried and counted. Touches nothing; refuses what can't be done.

    Of a run that is going it tells what would happen if it stopped now.
    """
    store = live.store
    run = current_run(store, live.loaded)
    require_settled(run)
    operation = new_run_id(Kind.LIVE)
    going_on = LiveRun(live.loaded, live.app, live.home, operation, live.queries)
    if isinstance(wanted, NoState):
        chosen = {}
        _require_beginning(going_on, store, run)
    else:
        chosen = _chosen(live, store, run, wanted)
    files = {name: files_of(one.folder, one.point.batch) for name, one in chosen.items()}
    notes = preflight(live.spark, going_on, chosen)
    parts = []
    for query in live.queries:
        part = _part(store, run, query, chosen.get(query.name))
        part = replace(part, files=files.get(query.name, ()), notes=notes.get(query.name, ()))
        parts.append(replace(part, reset=live.resetter(operation, query, part, send_again=send_again).look()))
    return RewindPlan(operation, run.app, run.id, tuple(parts))


def rewind(live: LiveApp, plan: RewindPlan, *, tell: Tell = lambda text: None) -> Run:
    """Carry the plan out. Killed anywhere, `resume` completes it, or it has not begun."""
    with live.alone("rewind") as store:
        old = rewindable(store, live.loaded)
        if old.id != plan.run or any(store.last_batch(old.id, part.query) != part.last for part in plan.queries):
            raise RunError(f"Cannot rewind as planned: {old.id} has gone on since", hint="Plan it again.")
        target = live.home.checkpoint(plan.app, plan.operation)
        try:
            for part in plan.queries:
                if part.folder is not None:
                    fork(part.folder, part.files, target / part.query)
                    history = History.load(live.home.checkpoint(plan.app, part.run))
                    if history is not None:
                        history.save(target)
        except BaseException:
            target.remove()
            raise
        forks = {part.query: {"run": part.run, "batch": part.batch} for part in plan.queries if part.batch >= 0}
        spec = {**asked_of(live.loaded, live.queries), FORK: forks, "rewind": plan.as_json()}
        made = Run(plan.operation, old.app, old.kind, old.folder, spec=spec, progress={REWIND: OPEN})
        store.fork_run(made, old.id, {part.query: part.batch for part in plan.queries})
        return _complete(live, store, plan, tell)


def resume(live: LiveApp, *, tell: Tell = lambda text: None) -> Run:
    """Complete a rewind, or the undoing of one, that was cut short."""
    with live.alone("rewind") as store:
        run = current_run(store, live.loaded)
        told = run.progress.get(REWIND)
        if told is None:
            raise RunError(f"Cannot resume a rewind of {run.app!r}: none is open")
        plan = planned_again(run.spec["rewind"])
        return (_complete if told == OPEN else _undo)(live, store, plan, tell)


def undo_rewind(live: LiveApp, *, tell: Tell = lambda text: None) -> Run:
    """Go back to the run that was abandoned: its rows come back, those of the run that went on go.

    Also the way out of a rewind that can't be completed.
    """
    with live.alone("undo the rewind of") as store:
        run = current_run(store, live.loaded)
        if "rewind" not in run.spec:
            raise RunError(f"Cannot undo a rewind of {run.app!r}: its run {run.id} was not rewound")
        store.update(run.id, progress={REWIND: UNDOING})
        return _undo(live, store, planned_again(run.spec["rewind"]), tell)


def rewindable(store: RunStore, loaded: Loaded) -> Run:
    """The run that would be rewound; refuses one that is going, or in the middle of another rewind."""
    run = current_run(store, loaded)
    if run.state.going:
        raise RunError(f"Cannot rewind {run.app!r}: run {run.id} is going", hint=f"`rekappa stop {run.id}` first.")
    require_settled(run)
    return run


def _chosen(
    live: LiveApp, store: RunStore, run: Run, wanted: ToTime | ToBatch | ToSavepoint | ToNewest
) -> dict[str, Restart]:
    require_same_sources(run, live.loaded)
    known = query_restarts(live.home, store, run)
    # A query that the app has only now begins without state, as any new one.
    return {one.name: choose(one.name, known[one.name], wanted) for one in live.queries if known.get(one.name)}


def _require_beginning(live: LiveRun, store: RunStore, run: Run) -> None:
    """Refuse to take out what can't be made again: Kafka must have all that the job has ever read."""
    wants = [
        Want(Position(one.source, one.region, one.topic, partition), start)
        for query in live.bound
        for batch in store.batches(run.id, query.name)[:1]
        for one in batch.positions
        for partition, start in one.ends.items()
    ]
    gone = dropped(wants, kept_by_kafka(live.loaded, live.home, live.sources)) if wants else []
    if gone:
        at = gone[0].position
        raise RunError(
            f"Cannot rewind {run.app!r} to no state: Kafka has dropped events that it has read, from offset "
            f"{gone[0].start} of topic {at.topic!r}, partition {at.partition}, on",
            hint=f"`rekappa bootstrap {run.app} --from …` makes state from the archive.",
        )


def _part(store: RunStore, run: Run, query: Query, at: Restart | None) -> QueryRewind:
    """What becomes of one query that goes on from a point, or without state."""
    legs = line(store, run, query.name)
    gone = legs if at is None else abandoned_by(legs, at.run, at.point.batch)
    counting = set() if at is None else {leg.run for leg in legs} - {leg.run for leg in gone if leg.run != at.run}
    every = {one.id for one in store.runs(run.app, Kind.LIVE)}
    began = at.point.committed if at else store.run(legs[-1].run).created
    return QueryRewind(
        query=query.name,
        run=at.run if at else run.id,
        batch=at.point.batch if at else -1,
        last=store.last_batch(run.id, query.name),
        committed=at.point.committed if at else None,
        savepoint=at.savepoint if at else None,
        folder=at.folder if at else None,
        abandoned=gone,
        dead=tuple(sorted(every - counting)),
        since=began - SLACK,
    )


def _complete(live: LiveApp, store: RunStore, plan: RewindPlan, tell: Tell) -> Run:
    for part, way in live.resetters(plan):
        tell(f"resetting {part.reset.sink}")
        way.carry_out()
    return store.update(plan.operation, progress={})


def _undo(live: LiveApp, store: RunStore, plan: RewindPlan, tell: Tell) -> Run:
    for part, way in live.resetters(plan):
        tell(f"bringing back {part.reset.sink}")
        way.undo()
    store.swap_runs(abandoned=plan.operation, back=plan.run)
    return store.run(plan.run)
