"""Asking the process of a run to stop, from another process."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta

from rekappa.errors import RunError
from rekappa.store.process import alive
from rekappa.store.record import Run
from rekappa.store.runs import RunStore

PATIENCE = timedelta(minutes=5)


def stop_run(store: RunStore, run_id: str, patience: timedelta = PATIENCE) -> Run:
    """Ask for a clean stop and wait for it. Refuses a run that is not going; never kills."""
    run = store.run(run_id)
    if not run.state.going or run.pid is None:
        raise RunError(f"Cannot stop run {run.id}: it is {run.state}, not running", hint="`rekappa runs` lists them.")
    os.kill(run.pid, signal.SIGTERM)
    deadline = time.monotonic() + patience.total_seconds()
    while alive(run.pid, run.process) and time.monotonic() < deadline:
        time.sleep(0.1)
    if alive(run.pid, run.process):
        raise RunError(
            f"Run {run.id} was asked to stop but process {run.pid} is still at its current batch",
            hint="It will stop when that batch is done; `rekappa runs` shows it.",
        )
    return store.run(run_id)
