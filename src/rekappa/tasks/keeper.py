"""The process that looks after one task: `python -m rekappa.tasks.keeper TASK`.

It runs the command as its child, and writes down how it ended. A kept task that fails is started again, after pauses
that grow, until it has failed too often in a row. What was refused (exit code 2) would be refused again. SIGTERM is
passed on, and ends the task when the command has ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from rekappa.home import Home
from rekappa.stack.process import birth_of
from rekappa.store.desk import Desk
from rekappa.store.task import Task, TaskState
from rekappa.tasks.files import answer_file, cause, log_file
from rekappa.tasks.pauses import Patience

PROGRAM = (sys.executable, "-m", "rekappa.cli.main")
REFUSED = 2
TASK = "REKAPPA_TASK"
"""The variable that tells a command which task it is."""


class Keeper:
    def __init__(self, home: Home, task: Task, patience: Patience, program: Sequence[str] = PROGRAM) -> None:
        self._home, self._task, self._patience, self._program = home, task, patience, program
        self._desk = Desk.open(home)
        self._stop = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None

    def stop(self, *_: object) -> None:
        """May be called from a signal's handler."""
        self._stop.set()
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()

    def keep(self) -> TaskState:
        pid = os.getpid()
        self._desk.change_task(self._task.id, pid=pid, process=birth_of(pid), now=("started",))
        restarts = 0
        while True:
            began = time.monotonic()
            code = self._once(restarts)
            if self._stop.is_set():
                return self._end(TaskState.STOPPED, code)
            if code == 0:
                return self._end(TaskState.DONE, code)
            why = cause(log_file(self._home, self._task.id), code)
            again = self._patience.pause(restarts, timedelta(seconds=time.monotonic() - began))
            if not self._task.kept or code == REFUSED or again is None:
                tried = f" It was started again {restarts} times in a row." if again is None else ""
                return self._end(TaskState.FAILED, code, why + tried)
            restarts, pause = again
            self._change(TaskState.WAITING, exit_code=code, error=why, next_start=datetime.now(UTC) + pause)
            if self._stop.wait(pause.total_seconds()):
                return self._end(TaskState.STOPPED, code)

    def _once(self, restarts: int) -> int:
        """Run the command to its end."""
        with (
            answer_file(self._home, self._task.id).open("wb") as answer,
            log_file(self._home, self._task.id).open("ab") as log,
        ):
            environ = {**os.environ, "REKAPPA_HOME": str(self._home.root), TASK: self._task.id}
            self._child = subprocess.Popen(
                [*self._program, *self._task.words],
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=log,
                cwd=self._task.folder,
                env=environ,
            )
            if self._stop.is_set():
                self._child.terminate()
            pid = self._child.pid
            told = {"command_pid": pid, "command_process": birth_of(pid)}
            self._change(TaskState.RUNNING, restarts=restarts, next_start=None, **told)
            return self._child.wait()

    def _change(self, state: TaskState, **changes: object) -> None:
        self._desk.change_task(self._task.id, state=state, **changes)

    def _end(self, state: TaskState, code: int, error: str | None = None) -> TaskState:
        changes = {"exit_code": code, "error": error, "next_start": None, "now": ("ended",)}
        self._desk.change_task(self._task.id, state=state, **changes)
        return state


def main(task_id: str) -> None:
    home = Home.locate()
    keeper = Keeper(home, Desk.open(home).task(task_id), Patience())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, keeper.stop)
    keeper.keep()


if __name__ == "__main__":
    main(sys.argv[1])
