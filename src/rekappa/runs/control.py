"""Telling a backfill to pause, go on or give up, from another process.

The wish stands in a file beside the run's checkpoint; the run looks at it between chunks and slices.
"""

from __future__ import annotations

import os
from enum import StrEnum

from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.store.leases import run_lease
from rekappa.store.record import Kind, Run, State
from rekappa.store.runs import RunStore


class Wish(StrEnum):
    """What a person wants of a run."""

    GO = "go"
    PAUSE = "pause"
    CANCEL = "cancel"


def wish(home: Home, run: Run) -> Wish:
    """The wish that stands; go on, if none does."""
    try:
        return Wish((home.checkpoint(run.app, run.id) / "control").read_text().strip())
    except (FileNotFoundError, ValueError):
        return Wish.GO


def set_wish(home: Home, run: Run, told: Wish) -> None:
    folder = home.checkpoint(run.app, run.id)
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".control.{os.getpid()}"
    unfinished.write_text(told)
    os.replace(unfinished, folder / "control")


def backfill_run(store: RunStore, run_id: str) -> Run:
    """The run of that id; refuses one that is neither a backfill nor a control of one."""
    run = store.run(run_id)
    if run.kind not in (Kind.BACKFILL, Kind.CONTROL):
        raise RunError(f"Cannot do this with run {run.id}: it is a {run.kind} run, not a backfill")
    return run


def pause(store: RunStore, home: Home, run_id: str) -> Run:
    """Ask a running backfill to wait before its next chunk or slice."""
    run = backfill_run(store, run_id)
    if not run.state.going:
        raise RunError(f"Cannot pause run {run.id}: it is {run.state}, not running", hint="`rekappa runs` lists them.")
    set_wish(home, run, Wish.PAUSE)
    return run


def cancel(store: RunStore, home: Home, run_id: str) -> Run:
    """Give up a backfill: at once if no process is at work on it, else before its next chunk or slice."""
    run = backfill_run(store, run_id)
    if run.state in (State.FINISHED, State.CANCELLED):
        raise RunError(f"Cannot cancel run {run.id}: it is {run.state}", hint="`rekappa clean` removes its staging.")
    set_wish(home, run, Wish.CANCEL)
    if run.state.going:
        return run
    with store.claim([run_lease(run.id)], f"cancel run {run.id}") as claim:
        claim.begin(run.id)
        claim.end(State.CANCELLED)
    return store.run(run.id)
