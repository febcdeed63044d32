"""A task: one `rekappa` command in a process that outlives whoever asked for it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum


class TaskState(StrEnum):
    """Where a task is. `waiting`: its command failed and is started again at `next_start`. `lost`: the process that
    looks after it is gone, and nobody had asked it to go."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    STOPPED = "stopped"
    DONE = "done"
    FAILED = "failed"
    LOST = "lost"

    @property
    def going(self) -> bool:
        return self in (TaskState.STARTING, TaskState.RUNNING, TaskState.WAITING)


@dataclass(frozen=True, slots=True)
class Task:
    """`words` are the command's, without the program. A `kept` task is started again when it fails.

    `pid` and `process` are those of its keeper, `command_pid` and `command_process` those of the command itself as it
    was started last, on `machine`. `folder` is where it was asked for: names of apps are
    looked up from there. What the command wrote lies in the log folder of the project there, under the task's id.
    """

    id: str
    words: tuple[str, ...]
    who: str
    face: str
    folder: str
    host: str
    machine: str
    app: str | None = None
    run: str | None = None
    kept: bool = False
    state: TaskState = TaskState.STARTING
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    started: datetime | None = None
    ended: datetime | None = None
    restarts: int = 0
    next_start: datetime | None = None
    exit_code: int | None = None
    error: str | None = None
    pid: int | None = None
    process: str | None = None
    command_pid: int | None = None
    command_process: str | None = None

    @property
    def command(self) -> str:
        """What one would type."""
        import shlex

        return shlex.join(("rekappa", *self.words))


def new_task_id() -> str:
    """Sorts by time."""
    return f"task_{datetime.now(UTC):%Y%m%d_%H%M%S}_{secrets.token_hex(2)}"
