"""Rewinding a live job: it goes on as a new run, a fork of an earlier point, and its sinks hold what they held there.

    plan = plan_rewind(spark, home, loaded, app, ToTime(moment))     nothing is touched
    rewind(spark, home, loaded, plan)

The order makes it repeatable. The fork is built beside everything else. Then one transaction of the run store
abandons the old run and makes the new one, not yet ready: from here on only this operation can go on, and `resume`
completes it. Then each sink is reset, each in a step that is not done twice; then the new run is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from rekappa.app import App
from rekappa.checkpoints.fork import files_of, fork
from rekappa.checkpoints.restarts import FORK, Restart, abandoned_by
from rekappa.config.bind import Query, queries
from rekappa.config.load import Loaded
from rekappa.config.targets import target_of
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.recovery.choose import NoState, Wanted, choose
from rekappa.recovery.listing import line, query_restarts
from rekappa.recovery.plan import QueryRewind, RewindPlan, SinkReset, planned_again
from rekappa.recovery.preflight import lightly, preflight
from rekappa.recovery.resets.choose import resetter
from rekappa.recovery.resets.contract import Abandoned, Resetter
from rekappa.runs.built import build_queries
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
from rekappa.sinks.registry import open_sink
from rekappa.store.record import Kind, Run, new_run_id
from rekappa.store.runs import RunStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tell = Callable[[str], None]
SLACK = timedelta(seconds=5)
"""A commit to a sink is stamped by a clock that may be this far from that of the file system."""


def plan_rewind(
    spark: SparkSession, home: Home, loaded: Loaded, app: App, wanted: Wanted, *, send_again: bool = False
) -> RewindPlan:
    """Everything that a rewind would do, tried and counted. Touches nothing; refuses what can't be done."""
    store = RunStore.existing(home)
    run = rewindable(store, loaded)
    bound = queries(loaded.config, app)
    chosen: dict[str, Restart] = {}
    if not isinstance(wanted, NoState):
        require_same_sources(run, loaded)
        known = query_restarts(home, store, run)
        # A query that the app has only now begins without state, as any new one.
        chosen = {one.name: choose(one.name, known[one.name], wanted) for one in bound if known.get(one.name)}
    files = {name: files_of(one.folder, one.point.batch) for name, one in chosen.items()}
    light = lightly(loaded)
    built = {one.query.name: one for one in build_queries(spark, light, app, home)}
    modes = {one.name: loaded.config.sinks[one.sink].output_mode for one in bound}
    notes = preflight(spark, home, built, chosen, modes)
    operation = new_run_id(Kind.LIVE)
    every = {one.id for one in store.runs(run.app, Kind.LIVE)}
    parts = []
    for query in bound:
        at = chosen.get(query.name)
        legs = line(store, run, query.name)
        gone = legs if at is None else abandoned_by(legs, at.run, at.point.batch)
        began = store.run(legs[-1].run).created
        counting = set() if at is None else {leg.run for leg in legs} - {leg.run for leg in gone if leg.run != at.run}
        part = QueryRewind(
            query=query.name,
            run=run.id if at is None else at.run,
            batch=-1 if at is None else at.point.batch,
            committed=at.point.committed if at else None,
            savepoint=at.savepoint if at else None,
            folder=at.folder if at else None,
            files=files.get(query.name, ()),
            abandoned=gone,
            dead=tuple(sorted(every - counting)),
            since=(at.point.committed if at else began) - SLACK,
            reset=SinkReset(query.sink, ""),
            notes=notes.get(query.name, ()),
        )
        way = _resetter(spark, home, loaded, operation, query, part, send_again)
        parts.append(replace(part, reset=way.look()))
    return RewindPlan(operation, run.app, run.id, tuple(parts))


def rewind(
    spark: SparkSession, home: Home, loaded: Loaded, app: App, plan: RewindPlan, *, tell: Tell = lambda text: None
) -> Run:
    """Carry the plan out. Killed anywhere, `resume` completes it, or it has not begun."""
    store = RunStore.existing(home)
    bound = queries(loaded.config, app)
    with store.claim([live_lease(loaded, query) for query in bound], f"rewind {plan.app!r}"):
        old = rewindable(store, loaded)
        if old.id != plan.run:
            raise RunError(f"Cannot rewind as planned: {old.id} goes on now", hint="Plan it again.")
        target = home.checkpoint(plan.app, plan.operation)
        try:
            for part in plan.queries:
                if part.folder is not None:
                    fork(part.folder, part.files, target / part.query)
        except BaseException:
            target.remove()
            raise
        store.fork_run(_forked(loaded, bound, old, plan), old.id, {part.query: part.batch for part in plan.queries})
        return _complete(spark, home, loaded, bound, store, plan, tell)


def resume(spark: SparkSession, home: Home, loaded: Loaded, app: App, *, tell: Tell = lambda text: None) -> Run:
    """Complete a rewind, or the undoing of one, that was cut short."""
    store = RunStore.existing(home)
    bound = queries(loaded.config, app)
    with store.claim([live_lease(loaded, query) for query in bound], f"rewind {loaded.config.app!r}"):
        run = current_run(store, loaded)
        told = run.progress.get(REWIND)
        if told is None:
            raise RunError(f"Cannot resume a rewind of {run.app!r}: none is open")
        plan = planned_again(run.spec["rewind"])
        if told == OPEN:
            return _complete(spark, home, loaded, bound, store, plan, tell)
        return _undo(spark, home, loaded, bound, store, plan, tell)


def undo_rewind(spark: SparkSession, home: Home, loaded: Loaded, app: App, *, tell: Tell = lambda text: None) -> Run:
    """Go back to the run that was abandoned: its rows come back, those of the run that went on go."""
    store = RunStore.existing(home)
    bound = queries(loaded.config, app)
    with store.claim([live_lease(loaded, query) for query in bound], f"undo the rewind of {loaded.config.app!r}"):
        run = rewindable(store, loaded)
        if "rewind" not in run.spec:
            raise RunError(f"Cannot undo a rewind of {run.app!r}: its run {run.id} was not rewound")
        store.update(run.id, progress={REWIND: UNDOING})
        return _undo(spark, home, loaded, bound, store, planned_again(run.spec["rewind"]), tell)


def rewindable(store: RunStore, loaded: Loaded) -> Run:
    """The run that would be rewound; refuses one that is going, or in the middle of another rewind."""
    run = current_run(store, loaded)
    if run.state.going:
        raise RunError(f"Cannot rewind {run.app!r}: run {run.id} is going", hint=f"`rekappa stop {run.id}` first.")
    require_settled(run)
    return run


def _forked(loaded: Loaded, bound: Sequence[Query], old: Run, plan: RewindPlan) -> Run:
    forks = {part.query: {"run": part.run, "batch": part.batch} for part in plan.queries if part.folder is not None}
    spec = {**old.spec, **asked_of(loaded, bound), FORK: forks, "rewind": plan.as_json()}
    return Run(plan.operation, old.app, old.kind, old.folder, spec=spec, progress={REWIND: OPEN})


def _complete(
    spark: SparkSession,
    home: Home,
    loaded: Loaded,
    bound: Sequence[Query],
    store: RunStore,
    plan: RewindPlan,
    tell: Tell,
) -> Run:
    for way, part in _ways(spark, home, loaded, bound, plan):
        tell(f"resetting {part.reset.sink}")
        way.carry_out()
    return store.update(plan.operation, progress={})


def _undo(
    spark: SparkSession,
    home: Home,
    loaded: Loaded,
    bound: Sequence[Query],
    store: RunStore,
    plan: RewindPlan,
    tell: Tell,
) -> Run:
    for way, part in _ways(spark, home, loaded, bound, plan):
        tell(f"bringing back {part.reset.sink}")
        way.undo()
    store.swap_runs(abandoned=plan.operation, back=plan.run)
    return store.run(plan.run)


def _ways(
    spark: SparkSession, home: Home, loaded: Loaded, bound: Sequence[Query], plan: RewindPlan
) -> list[tuple[Resetter, QueryRewind]]:
    parts = {part.query: part for part in plan.queries}
    make = partial(_resetter, spark, home, loaded, plan.operation)
    return [(make(query, parts[query.name], True), parts[query.name]) for query in bound if query.name in parts]


def _resetter(
    spark: SparkSession, home: Home, loaded: Loaded, operation: str, query: Query, part: QueryRewind, send_again: bool
) -> Resetter:
    target = target_of(loaded.config.sinks[query.sink])
    gone = Abandoned(spark, operation, query.sink, target, query.name, part.abandoned, part.dead, part.since)
    return resetter(gone, open_sink(query.sink, loaded.config, home), send_again=send_again)
