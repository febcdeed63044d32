"""Ending tasks, and what is left of those that nobody looks after any more. Both faces call these."""

from __future__ import annotations

import os
import signal
from datetime import timedelta

from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.store.desk import Desk
from rekappa.store.host import this_host
from rekappa.store.task import Task, TaskState
from rekappa.tasks.standing import keeper, orphan, task

PATIENCE = timedelta(minutes=10)
"""How long the command of a lost task has to end: a live run finishes its batch first."""


def require_stoppable(found: Task) -> None:
    """Refuse what can't be stopped from here, or has ended."""
    if not found.state.going and found.state is not TaskState.LOST:
        raise RunError(f"Cannot stop task {found.id}: it is {found.state}", hint="`rekappa jobs` lists them.")
    here = this_host()
    # A keeper of an earlier start of this machine is gone, and so is its command: that can be written down.
    if found.machine != here.machine and not (found.state is TaskState.LOST and found.host == here.name):
        raise RunError(f"Cannot stop task {found.id} from {here.name}: it is on {found.host}")


def stop_task(home: Home, task_id: str, patience: timedelta = PATIENCE) -> Task:
    """Ask a task to end: its command ends cleanly, a pause is cut short. Does not wait for it.

    Of a lost task the command is asked itself, if it still runs, and waited for: nobody else would write down its end.
    """
    found = task(home, task_id)
    require_stoppable(found)
    if found.state is not TaskState.LOST:
        os.kill(keeper(found).pid, signal.SIGTERM)
        return found
    left = orphan(found)
    if left is not None and not left.ended(patience):
        raise RunError(
            f"Cannot stop task {found.id}: process {left.pid} was asked to end, and still runs",
            hint=f"Ask again later; or end it, which a run survives: kill -9 {left.pid}",
        )
    return _over(home, found)


def require_dismissible(found: Task) -> None:
    """Refuse what has not failed, and what still runs."""
    if found.state is TaskState.LOST and (left := orphan(found)):
        raise RunError(
            f"Cannot dismiss task {found.id}: its command still runs as process {left.pid}",
            hint=f"rekappa jobs {found.id} --stop ends it.",
        )
    if found.state not in (TaskState.FAILED, TaskState.LOST):
        raise RunError(f"Cannot dismiss task {found.id}: it is {found.state}, not failed or lost")


def dismiss_task(home: Home, task_id: str) -> Task:
    """Somebody has seen that it failed or was lost: it is over, and nobody is told of it any more."""
    found = task(home, task_id)
    require_dismissible(found)
    return _over(home, found)


def _over(home: Home, found: Task) -> Task:
    return Desk.open(home).change_task(found.id, state=TaskState.STOPPED, next_start=None, now=("ended",))
