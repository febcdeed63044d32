"""Runs as both faces tell of them, and what may be asked of one."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

from rekappa.errors import RunError
from rekappa.shown import plain
from rekappa.store.record import Run, State, Wish
from rekappa.store.runs import RunStore


def runs_document(found: Iterable[Run]) -> list[dict[str, Any]]:
    """`rekappa runs --json`."""
    return [{**plain(one), "owner": one.owner} for one in found]


def run_document(store: RunStore, run_id: str) -> dict[str, Any]:
    """`rekappa runs RUN --json`: the run, the code it ran, the controls of its validation."""
    run = store.run(run_id)
    code = [plain(one) for one in store.starts(run.id)]
    return {**plain(run), "owner": run.owner, "code": code, "controls": [one.id for one in store.controls(run)]}


class Resumption(Enum):
    """Where a backfill goes on: in the process that waits, or in a new one."""

    THERE = "in its own process"
    HERE = "in this process"


def resumption(run: Run) -> Resumption:
    """How to go on with a backfill; refuses one that is at work or over."""
    if run.state.going:
        if run.state is not State.PAUSED and run.wish is not Wish.PAUSE:
            raise RunError(f"Cannot resume run {run.id}: process {run.pid} is at work on it")
        return Resumption.THERE
    if not run.state.resumable:
        raise RunError(f"Cannot resume run {run.id}: it is {run.state}", hint="Start a new backfill.")
    return Resumption.HERE
