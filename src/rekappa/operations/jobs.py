"""What may be asked of a task: to end, or to be told of no more."""

from __future__ import annotations

from rekappa.operations.changes import AskedChange
from rekappa.store.task import Task, TaskState
from rekappa.tasks.ending import require_dismissible, require_stoppable
from rekappa.tasks.standing import orphan


def stop_job_change(found: Task) -> AskedChange:
    """`rekappa jobs JOB --stop`; refused at once where the command would be."""
    require_stoppable(found)
    tells: tuple[str, ...] = (f"`{found.command}` is asked to end. A live run ends after its current batch.",)
    if found.state is TaskState.LOST:
        left = orphan(found)
        there = (
            left and f"Its command still runs as process {left.pid}, and is asked to end: a live run after its batch."
        )
        tells = (there or "Nothing of it runs any more.", "Then it is written down as stopped.")
    words = ("jobs", found.id, "--stop", "--json")
    return AskedChange("stop job", f"Stop {found.id}", words, tells, found.app, found.run)


def dismiss_change(found: Task) -> AskedChange:
    """`rekappa jobs JOB --dismiss`; refused at once where the command would be."""
    require_dismissible(found)
    tells = (f"`{found.command}` is {found.state}. It is written down as stopped, and no alert tells of it any more.",)
    words = ("jobs", found.id, "--dismiss", "--json")
    return AskedChange("dismiss job", f"Dismiss {found.id}", words, tells, found.app, found.run)
