"""Rewinding live jobs: each goes on as a new run, a fork of an earlier point, and its sinks hold what they held there.

    live = LiveApp(spark, home, loaded, app)
    plan = plan_rewind(live, ToTime(moment))     nothing is touched
    rewind(live, plan)

The order makes it repeatable. The forks are built beside everything else. Then one transaction of the run store
abandons the old runs and makes the new ones, not yet ready: from here on only this operation can go on, and `resume`
completes it. Then topics are fenced, then the other sinks are reset, each in a step that is not done twice and that a
journal in the first new run's record tells of; then, in one transaction, the new runs are ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

from rekappa.checkpoints.attempts import drop_left, forking
from rekappa.checkpoints.fork import fork
from rekappa.checkpoints.restarts import FORK
from rekappa.config.load import Loaded
from rekappa.errors import RunError
from rekappa.recovery.chain import chain_of, chained_again
from rekappa.recovery.journal import RepeatableStep, carry_out
from rekappa.recovery.live_app import LiveApp, loaded_of
from rekappa.recovery.plan import RewindPlan, planned_again
from rekappa.recovery.planning import plan_rewind
from rekappa.recovery.resets.topics import TopicReset
from rekappa.runs.current import OPEN, REWIND, TOPICS, UNDOING, asked_of, current_run, require_settled, topics_of
from rekappa.runs.history import History
from rekappa.store.record import Fork, Run
from rekappa.store.runs import RunStore

__all__ = ["LiveApp", "plan_rewind", "resumable", "resume", "rewind", "rewindable", "undo_rewind", "undoable"]

Tell = Callable[[str], None]
DONE = "done"
"""In the progress of the run that names the operation: the steps that are done."""

Planned = Sequence[tuple[LiveApp, RewindPlan]]
"""The apps of an operation, that which is meant first, each with its part of the plan."""


def rewind(live: LiveApp, plan: RewindPlan, *, tell: Tell = lambda text: None) -> Run:
    """Carry the plan out. Killed anywhere, `resume` completes it, or it has not begun."""
    planned = _planned(live, plan)
    with _alone(planned, "rewind") as store:
        for one, part in planned:
            _require_unchanged(store, one, part)
        with ExitStack() as marked:
            for one, part in planned:
                marked.enter_context(forking(one.home, part.app, part.operation))
            try:
                for one, part in planned:
                    _fork(one, part)
            except BaseException:
                for one, part in planned:
                    one.home.checkpoint(part.app, part.operation).remove()
                raise
            told = plan.as_json()
            store.fork_runs([_forked(store, one, part, told) for one, part in planned])
        return _complete(planned, store, tell)


def resume(live: LiveApp, *, tell: Tell = lambda text: None) -> Run:
    """Complete a rewind, or the undoing of one, that was cut short; of all its apps, whichever of them is named."""
    plan = resumable(live.store, live.loaded)
    planned = _planned(live, plan)
    with _alone(planned, "rewind") as store:
        told = store.run(plan.operation).progress.get(REWIND)
        if told is None:
            raise RunError(f"Cannot resume a rewind of {live.name!r}: it has been completed meanwhile")
        return (_complete if told == OPEN else _undo)(planned, store, tell)


def undo_rewind(live: LiveApp, *, tell: Tell = lambda text: None) -> Run:
    """Go back to the runs that were abandoned: their rows come back, those of the runs that went on go.

    Also the way out of a rewind that can't be completed.
    """
    planned = _planned(live, undoable(live.store, live.loaded))
    with _alone(planned, "undo the rewind of") as store:
        undoable(store, live.loaded)
        _require_no_other_reader(planned)
        for one, part in planned:
            for _, way in (*one.resetters(part), *one.unplanned(part)):
                way.look_back()
        for _, part in planned:
            store.update(part.operation, progress={REWIND: UNDOING})
        return _undo(planned, store, tell)


def rewindable(store: RunStore, loaded: Loaded) -> Run:
    """The run that would be rewound; refuses one that is going, or in the middle of another rewind."""
    run = current_run(store, loaded)
    if run.state.going:
        raise RunError(f"Cannot rewind {run.app!r}: run {run.id} is going", hint=f"`rekappa stop {run.id}` first.")
    require_settled(run)
    return run


def resumable(store: RunStore, loaded: Loaded) -> RewindPlan:
    """The rewind of the app that was cut short; refused if there is none. Needs the store alone."""
    run = current_run(store, loaded)
    if run.progress.get(REWIND) is None:
        raise RunError(f"Cannot resume a rewind of {run.app!r}: none is open")
    return planned_again(run.spec["rewind"])


def undoable(store: RunStore, loaded: Loaded) -> RewindPlan:
    """The last rewind of the app; refused if there was none, or one of its apps runs or has been rewound since. Needs
    the store and the apps' configurations alone."""
    run = current_run(store, loaded)
    if "rewind" not in run.spec:
        raise RunError(f"Cannot undo a rewind of {run.app!r}: its run {run.id} was not rewound")
    plan = planned_again(run.spec["rewind"])
    for part in plan.apps:
        old = store.run(part.run)
        own = loaded if old.app == run.app else loaded_of(old)
        now = current_run(store, own)
        if now.id != part.operation:
            raise RunError(
                f"Cannot undo the rewind of {run.app!r}: {part.app}, rewound with it, has gone on as {now.id}",
                hint=f"`rekappa rewind {part.app} --undo` first.",
            )
        if now.state.going:
            raise RunError(f"Cannot undo the rewind: run {now.id} is going", hint=f"`rekappa stop {now.id}` first.")
    return plan


def _planned(live: LiveApp, plan: RewindPlan) -> Planned:
    runs = [live.store.run(part.run) for part in plan.apps]
    return list(zip(chained_again(live, runs), plan.apps, strict=True))


@contextmanager
def _alone(planned: Planned, doing: str) -> Iterator[RunStore]:
    """Nothing else writes the apps' sinks meanwhile, nor rewinds one of them."""
    store = planned[0][0].store
    leases = [lease for one, _ in planned for lease in one.leases]
    with store.claim(leases, f"{doing} {planned[0][1].app!r}"):
        for one, part in planned:
            drop_left(one.home, part.app, {run.id for run in store.runs(part.app)}, datetime.now(UTC))
        yield store


def _require_unchanged(store: RunStore, one: LiveApp, part: RewindPlan) -> None:
    old = rewindable(store, one.loaded)
    if old.id != part.run or any(store.last_batch(old.id, query.query) != query.last for query in part.queries):
        raise RunError(f"Cannot rewind as planned: {old.id} has gone on since", hint="Plan it again.")


def _require_no_other_reader(planned: Planned) -> None:
    """Refuse to undo what somebody has read who was not rewound with the others: he began since."""
    others = set(chain_of(planned[0][0]).apps) - {part.app for _, part in planned}
    names = ", ".join(sorted(others))
    if others:
        raise RunError(
            f"Cannot undo the rewind of {planned[0][1].app!r}: {names} has read what it wrote since",
            hint="--to TIME --cascade goes back with all of them.",
        )


def _fork(one: LiveApp, part: RewindPlan) -> None:
    target = one.home.checkpoint(part.app, part.operation)
    for query in part.queries:
        if query.folder is not None:
            fork(query.folder, query.files, target / query.query)
            history = History.load(one.home.checkpoint(part.app, query.run))
            if history is not None:
                history.save(target)


def _forked(store: RunStore, one: LiveApp, part: RewindPlan, plan: dict[str, object]) -> Fork:
    """The run that goes on, with the whole plan in its record: whichever app is asked can complete it."""
    old = store.run(part.run)
    forks = {query.query: {"run": query.run, "batch": query.batch} for query in part.queries if query.batch >= 0}
    kept = {TOPICS: old.spec[TOPICS]} if forks and TOPICS in old.spec else {TOPICS: topics_of(one.loaded, one.home)}
    spec = {**asked_of(one.loaded, one.queries), **kept, FORK: forks, "rewind": plan}
    made = Run(part.operation, old.app, old.kind, old.folder, spec=spec, progress={REWIND: OPEN})
    return Fork(made, old.id, {query.query: query.batch for query in part.queries})


def _complete(planned: Planned, store: RunStore, tell: Tell) -> Run:
    operation = planned[0][1].operation
    fences: list[RepeatableStep] = []
    resets: list[RepeatableStep] = []
    for one, part in planned:
        for query, way in one.resetters(part):
            fenced = isinstance(way, TopicReset)
            name = f"{'fence' if fenced else 'reset'} {part.app}/{query.reset.sink}"
            (fences if fenced else resets).append(RepeatableStep(name, way.carry_out))

    def note(done: Sequence[str]) -> None:
        store.update(operation, progress={REWIND: OPEN, DONE: list(done)})

    carry_out([*fences, *resets], store.run(operation).progress.get(DONE, ()), note, tell)
    tell("let them go on")
    store.settle_runs([part.operation for _, part in planned])
    return store.run(operation)


def _undo(planned: Planned, store: RunStore, tell: Tell) -> Run:
    for one, part in reversed(planned):
        for query, way in (*one.resetters(part), *one.unplanned(part)):
            tell(f"bring back {part.app}/{query.reset.sink}")
            way.undo()
    store.swap_runs({part.operation: part.run for _, part in planned})
    return store.run(planned[0][1].run)
