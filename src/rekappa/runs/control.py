"""Telling a backfill to pause, go on or give up, from another process.

The wish stands in the run's record, so that it can be said from any machine; the run looks at it between chunks and
slices.
"""

from __future__ import annotations

from rekappa.errors import RunError
from rekappa.store.leases import run_lease
from rekappa.store.record import Kind, Run, State, Wish
from rekappa.store.runs import RunStore


def backfill_run(store: RunStore, run_id: str, doing: str) -> Run:
    """The run of that id; refuses one that is neither a backfill nor a control of one, with what could not be done."""
    run = store.run(run_id)
    if run.kind not in (Kind.BACKFILL, Kind.CONTROL):
        raise RunError(
            f"Cannot {doing} run {run.id}: it is a {run.kind} run, not a backfill",
            hint=f"`rekappa stop {run.id}` stops it; the command that started it lets it go on.",
        )
    return run


def pause(store: RunStore, run_id: str) -> Run:
    """Ask a running backfill to wait before its next chunk or slice."""
    run = backfill_run(store, run_id, "pause")
    if not run.state.going:
        raise RunError(f"Cannot pause run {run.id}: it is {run.state}, not running", hint="`rekappa runs` lists them.")
    return store.update(run.id, wish=Wish.PAUSE)


def cancel(store: RunStore, run_id: str) -> Run:
    """Give up a backfill: at once if no process is at work on it, else before its next chunk or slice."""
    run = backfill_run(store, run_id, "cancel")
    if run.state in (State.FINISHED, State.CANCELLED):
        raise RunError(f"Cannot cancel run {run.id}: it is {run.state}", hint="`rekappa clean` removes its staging.")
    told = store.update(run.id, wish=Wish.CANCEL)
    if told.state.going:
        return told
    with store.claim([run_lease(run.id)], f"cancel run {run.id}") as claim:
        claim.begin(run.id)
        claim.end(State.CANCELLED)
    return store.run(run.id)
