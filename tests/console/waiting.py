"""Waiting for what happens in other processes."""

from __future__ import annotations

import time
from collections.abc import Callable

from rekappa.home import Home
from rekappa.store.task import Task
from rekappa.tasks.standing import task

PATIENCE = 300


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"gave up waiting until {what}"
        time.sleep(0.05)


def ended(home: Home, task_id: str) -> Task:
    wait_until(lambda: not task(home, task_id).state.going, "the task has ended")
    return task(home, task_id)
