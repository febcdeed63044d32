"""Who did what, from the command line; and which run a task has begun.

A command that runs as a task was asked for by whoever started the task, which is written down already.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rekappa.home import Home
from rekappa.operations.core import Core
from rekappa.store.desk import Desk
from rekappa.tasks.keeper import TASK
from rekappa.tasks.start import this_person


def record_deed(home: Home, what: str, app: str | None = None, run: str | None = None, **more: Any) -> None:
    """Write into the audit trail what this command is about to change."""
    if TASK not in os.environ:
        Desk.open(home).tell(this_person(), "cli", what, app, run, **more)


def record_outcome(home: Home, what: str, app: str | None = None, run: str | None = None, **more: Any) -> None:
    """Write down what a command has found, in the name of whoever asked for it, through whichever face."""
    who = acting(home, Path())
    who.desk().tell(who.who, who.face, what, app, run, **more)


def acting(home: Home, folder: Path) -> Core:
    """The core in the name of whoever typed this command, or asked for the task that it is."""
    if task := os.environ.get(TASK):
        asked = Desk.open(home).task(task)
        return Core(home, folder, asked.who, asked.face)
    return Core(home, folder, this_person(), "cli")


def name_run(home: Home, run: str) -> None:
    """Say which run this process is at work on, if it is a task's."""
    if task := os.environ.get(TASK):
        Desk.open(home).change_task(task, run=run)
