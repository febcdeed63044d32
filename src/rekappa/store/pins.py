"""Which snapshots of tables the runs of a store still need: those must not expire.

A backfill reads the archive as it was planned, also when it goes on days later, and is published against production as
it was when it was created. A snapshot's id is unique over all tables, so that nobody need know which one it is of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from rekappa.home import Home
from rekappa.store.record import Kind, Run, State
from rekappa.store.runs import RunStore

NEEDED = timedelta(days=30)
"""How long after a backfill's last sign of life its snapshots are kept. Afterwards it must be made anew."""


def pins_of(home: Home) -> Callable[[], set[int]]:
    """Asks the project's store, each time that it is called."""
    return lambda: pinned(RunStore.open(home).runs(kind=Kind.BACKFILL), datetime.now(UTC))


def pinned(runs: Iterable[Run], now: datetime) -> set[int]:
    """The snapshots that these runs read, or are compared with."""
    found: set[int] = set()
    for run in runs:
        if run.state is not State.CANCELLED and (run.state.going or now - (run.ended or run.created) < NEEDED):
            found |= _snapshots(run.spec.get("archive")) | _snapshots((run.spec.get("baseline") or {}).get("snapshots"))
    return found


def _snapshots(told: Any) -> set[int]:
    return {int(one) for one in (told or {}).values() if one is not None}
