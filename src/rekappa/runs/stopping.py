"""Asking the process of a run to stop, from another process."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta

from rekappa.errors import RunError
from rekappa.stack.process import Process
from rekappa.store.host import this_host
from rekappa.store.leases import run_lease
from rekappa.store.record import Run
from rekappa.store.runs import RunStore

PATIENCE = timedelta(minutes=5)


def process_of(store: RunStore, run_id: str) -> Process:
    """The process of a run that can be stopped from here; refuses any other."""
    run, lease = store.run(run_id), store.lease(run_lease(run_id))
    if not run.state.going or lease is None or lease.pid is None:
        raise RunError(f"Cannot stop run {run.id}: it is {run.state}, not running", hint="`rekappa runs` lists them.")
    if lease.machine != this_host().machine:
        raise RunError(
            f"Cannot stop run {run.id} from {this_host().name}: its process {lease.pid} is on {lease.host}",
            hint=f"Run `rekappa stop {run.id}` there.",
        )
    return Process(lease.pid, lease.process or "")


def stop_run(store: RunStore, run_id: str, patience: timedelta = PATIENCE) -> Run:
    """Ask for a clean stop and wait for it; never kills."""
    process = process_of(store, run_id)
    if process.alive():
        os.kill(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + patience.total_seconds()
    while process.alive() and time.monotonic() < deadline:
        time.sleep(0.1)
    if process.alive():
        raise RunError(
            f"Run {run_id} was asked to stop but process {process.pid} is still at its current batch",
            hint="It will stop when that batch is done; `rekappa runs` shows it.",
        )
    return store.run(run_id)
