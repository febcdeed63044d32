"""This process at work: the leases it holds, and the run whose record only it may write meanwhile.

    with store.claim(["archive table lake.events.plays"], "archive 'rmi'") as claim:
        claim.begin(run.id)
        claim.check()                        before each commit
        claim.end(State.STOPPED)

A thread renews the leases, so that a long batch does not lose them. A process that was suspended, or whose machine
was, may find that another has taken over: `check`, `update`, `writing` and `end` then raise `LeaseLost` and write
nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, func, select

from rekappa.errors import LeaseLost, RunError, StoreError
from rekappa.store import leases
from rekappa.store.database import Database
from rekappa.store.dialects import clock
from rekappa.store.record import State, Wish
from rekappa.store.rows import change_run
from rekappa.store.samples import Sampler
from rekappa.store.tables import RUNS

LASTS = timedelta(seconds=60)
"""How long a lease outlives its last renewal: what a process of another machine that died holds others up for."""
RENEWALS = 6
"""How often a lease is renewed in that time."""


class Claim:
    """Made by `RunStore.claim`. Safe to use from several threads; gives everything back at the end of its `with`."""

    def __init__(self, database: Database, names: Sequence[str], doing: str) -> None:
        self.run: str | None = None
        self._database, self._doing = database, doing
        self._lasts = LASTS
        self._tokens: dict[str, int] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._taken: str | None = None
        self._sampler: Sampler | None = None
        with database.changing() as db:
            taken = self._take(db, names)
        self._tokens = taken
        self._heart = threading.Thread(target=self._beat, name="rekappa-lease", daemon=True)
        self._heart.start()

    def begin(self, run: str, log: str | None = None) -> None:
        """Mark the run as running in this process. Refuses one that another process is at work on."""
        with self.writing() as db:
            lease = leases.run_lease(run)
            taken = {} if lease in self._tokens else self._take(db, [lease], run)
            leases.renew(db, self._tokens, self._lasts, run)
            found = db.execute(select(RUNS.c.logs, RUNS.c.created).where(RUNS.c.id == run)).one_or_none()
            if found is None:
                raise RunError(f"Cannot {self._doing}: there is no run {run}")
            logs, sampler = found.logs, Sampler(run, found.created)
            known = logs if log is None or log in logs else [*logs, log]
            started = func.coalesce(RUNS.c.started, clock(db), type_=RUNS.c.started.type)
            changes = {"state": State.RUNNING, "ended": None, "error": None, "started": started, "logs": known}
            change_run(db, run, changes)
        self._tokens = self._tokens | taken
        self.run, self._sampler = run, sampler

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction of the holder: it raises `LeaseLost` at its beginning, and nobody takes over before its end."""
        with self._lock, self._database.changing() as db:
            self._require(db)
            yield db

    def check(self) -> None:
        """Called before each commit: raises `LeaseLost` unless every lease is still this process's."""
        with self.writing():
            pass

    def update(self, **changes: Any) -> None:
        """Change fields of the run, by their names in `Run`. Of its progress a sample is kept now and then."""
        assert self.run is not None, "begin() comes first"
        assert self._sampler is not None
        with self.writing() as db:
            change_run(db, self.run, changes)
            if "progress" in changes:
                self._sampler.take(db, changes["progress"])

    def wish(self) -> Wish:
        """What a person wants of the run, said from any machine."""
        assert self.run is not None, "begin() comes first"
        with self._database.reading() as db:
            return Wish(db.scalars(select(RUNS.c.wish).where(RUNS.c.id == self.run)).one())

    def end(self, state: State, error: str | None = None) -> None:
        """Say how the run ended and give the leases back, in one step."""
        assert self.run is not None, "begin() comes first"
        with self.writing() as db:
            change_run(db, self.run, {"state": state, "ended": clock(db), "error": error})
            leases.give_back(db, self._tokens)
            self._tokens = {}
        self._ended.set()

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        # A store out of reach must not hide why the work ended; what is not given back expires.
        with suppress(StoreError), self._lock, self._database.changing() as db:
            leases.give_back(db, self._tokens)
            self._tokens = {}
        self._heart.join()

    def _take(self, db: Connection, names: Sequence[str], run: str | None = None) -> dict[str, int]:
        answer = leases.take(db, names, self._lasts, run)
        if isinstance(answer, leases.Lease):
            wait = "It is taken over when that process has not been heard of for a minute."
            stop = f"`rekappa stop {answer.run}` stops it. " if answer.run else ""
            raise RunError(f"Cannot {self._doing}: {answer.holder} on {answer.name!r}", hint=stop + wait)
        return answer

    def _require(self, db: Connection) -> None:
        self._taken = self._taken or leases.renew(db, self._tokens, self._lasts)
        if self._taken is None:
            return
        now = leases.find(db, self._taken)
        by = f": {now.holder}" if now is not None and now.pid is not None else ""
        raise LeaseLost(
            f"Cannot go on: this process lost its lease on {self._taken!r}{by}",
            hint="It was suspended, or the clock was set, for longer than the lease lasts. Nothing was written since.",
        )

    def _beat(self) -> None:
        while not self._ended.wait(self._lasts.total_seconds() / RENEWALS):
            try:
                self.check()
            except LeaseLost:
                return
            except StoreError:
                # The store is busy or out of reach: the next beat, or the check before a commit, tells.
                continue
