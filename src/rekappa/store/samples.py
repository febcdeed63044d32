"""How a run went, over time: its progress now and then, often at first and ever less often.

A run of ten minutes has some two hundred samples, one of a month some two thousand.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, select

from rekappa.store.database import Database
from rekappa.store.dialects import clock, upsert
from rekappa.store.tables import SAMPLES

LEAST = timedelta(seconds=3)
PER_AGE = 200
"""Between two samples lies at least this part of the run's age."""


@dataclass(frozen=True, slots=True)
class Sampled:
    at: datetime
    progress: Mapping[str, Any]


class Sampler:
    """One process's view of one run: says when the next sample is due."""

    def __init__(self, run: str, created: datetime) -> None:
        self._run, self._created, self._next = run, created, 0.0

    def take(self, db: Connection, progress: Mapping[str, Any]) -> None:
        """Keep this progress if it is time to; called in the transaction that writes it to the run's record."""
        if time.monotonic() < self._next:
            return
        now = clock(db)
        db.execute(upsert(db)(SAMPLES).values(run=self._run, at=now, progress=progress).on_conflict_do_nothing())
        self._next = time.monotonic() + gap(now - self._created).total_seconds()


def gap(age: timedelta) -> timedelta:
    """How long to wait for the next sample of a run that is so old."""
    return max(LEAST, age / PER_AGE)


def samples(database: Database, run: str) -> list[Sampled]:
    """In the order of time."""
    with database.reading() as db:
        chosen = select(SAMPLES.c.at, SAMPLES.c.progress).where(SAMPLES.c.run == run).order_by(SAMPLES.c.at)
        return [Sampled(row.at, row.progress) for row in db.execute(chosen)]
