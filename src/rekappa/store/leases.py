"""Leases: the right of one process to write what a name stands for, until it expires or is given back.

A lease is renewed while its process works. It can be taken over when it has expired, and at once when it is
held by a process of this machine that is no more. The number of a process on another machine says nothing.
Each holder gets a higher token than the one before: whoever finds another token than its own has lost it.

Time is the database's. Rows are locked in the order of their names, so that no two processes wait for each other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, literal, select, update

from rekappa.stack.process import birth_of
from rekappa.store.dialects import clock, upsert
from rekappa.store.host import this_host
from rekappa.store.tables import LEASES

_FREE = dict.fromkeys(("run", "host", "machine", "pid", "process", "heartbeat", "expires"))


@dataclass(frozen=True, slots=True)
class Lease:
    """One row: who holds the name, or held it last. `run` is None while its holder has not chosen one yet."""

    name: str
    token: int
    run: str | None
    host: str | None
    machine: str | None
    pid: int | None
    process: str | None
    heartbeat: datetime | None
    expires: datetime | None

    def held(self, now: datetime) -> bool:
        """Whether its process may still write; `now` is the database's."""
        if self.pid is None or self.expires is None or self.expires <= now:
            return False
        return self.machine != this_host().machine or birth_of(self.pid) == self.process

    @property
    def holder(self) -> str:
        """For people: who is at work."""
        who = f"run {self.run} is" if self.run else "somebody is"
        return f"{who} at work in process {self.pid} on {self.host}"


def run_lease(run: str) -> str:
    """The name of a run itself: one process at a time works on it."""
    return f"run {run}"


def find(db: Connection, name: str) -> Lease | None:
    row = db.execute(select(LEASES).where(LEASES.c.name == name)).one_or_none()
    return Lease(**row._mapping) if row else None


def all_held(db: Connection) -> list[Lease]:
    """The runs' own leases that are held now."""
    own = LEASES.c.name == literal(run_lease("")) + LEASES.c.run
    found = [Lease(**row._mapping) for row in db.execute(select(LEASES).where(own, LEASES.c.pid.is_not(None)))]
    now = clock(db)
    return [lease for lease in found if lease.held(now)]


def take(db: Connection, names: Iterable[str], lasts: timedelta, run: str | None = None) -> dict[str, int] | Lease:
    """Take all names for this process and answer their tokens; or take none, and answer one that is held."""
    found = [_locked(db, name) for name in sorted(set(names))]
    now, pid, host = clock(db), os.getpid(), this_host()
    for lease in found:
        if lease.held(now):
            return lease
    tokens = {lease.name: lease.token + 1 for lease in found}
    mine = {"run": run, "host": host.name, "machine": host.machine, "pid": pid, "process": birth_of(pid)}
    for name, token in tokens.items():
        row = {"token": token, **mine, "heartbeat": now, "expires": now + lasts}
        db.execute(update(LEASES).where(LEASES.c.name == name).values(row))
    return tokens


def _locked(db: Connection, name: str) -> Lease:
    """The row of the name, made if nobody held it yet; nobody else changes it before the transaction ends."""
    db.execute(upsert(db)(LEASES).values(name=name, token=0).on_conflict_do_nothing())
    row = db.execute(select(LEASES).where(LEASES.c.name == name).with_for_update()).one()
    return Lease(**row._mapping)


def renew(db: Connection, tokens: Mapping[str, int], lasts: timedelta, run: str | None = None) -> str | None:
    """Put off the end of each; answers the first that another process has taken, None if all are still ours.

    One that has expired but was taken by nobody is ours as before: its token says so. Until the transaction ends
    nobody can take them: what else it writes is written by the holder.
    """
    if not tokens:
        return None
    now = clock(db)
    row = {"heartbeat": now, "expires": now + lasts} | ({} if run is None else {"run": run})
    for name in sorted(tokens):
        mine = (LEASES.c.name == name) & (LEASES.c.token == tokens[name]) & LEASES.c.pid.is_not(None)
        if db.execute(update(LEASES).where(mine).values(row)).rowcount != 1:
            return name
    return None


def give_back(db: Connection, tokens: Mapping[str, int]) -> None:
    """Free what is still ours. The row stays: its token is the one to go on from."""
    for name in sorted(tokens):
        mine = (LEASES.c.name == name) & (LEASES.c.token == tokens[name])
        db.execute(update(LEASES).where(mine).values(_FREE))
