"""Leases: the right of one process to write what a name stands for, until it expires or is given back.

A lease is renewed while its process works. It can be taken over when it has expired, and at once when it is
held by a process of this machine that is no more. The number of a process on another machine says nothing.
Each holder gets a higher token than the one before: whoever finds another token than its own has lost it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from rekappa.stack.process import birth_of
from rekappa.store.host import this_host

COLUMNS = "name, token, run, host, machine, pid, process, heartbeat, expires"


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
    heartbeat: str | None
    expires: str | None

    def held(self, now: datetime) -> bool:
        if self.pid is None or self.expires is None or datetime.fromisoformat(self.expires) <= now:
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


def find(db: sqlite3.Connection, name: str) -> Lease | None:
    row = db.execute(f"SELECT {COLUMNS} FROM leases WHERE name = ?", [name]).fetchone()
    return Lease(*row) if row else None


def all_held(db: sqlite3.Connection) -> list[Lease]:
    """The runs' own leases that are held now."""
    now = datetime.now(UTC)
    rows = db.execute(f"SELECT {COLUMNS} FROM leases WHERE name = 'run ' || run AND pid IS NOT NULL")
    return [lease for lease in (Lease(*row) for row in rows) if lease.held(now)]


def take(
    db: sqlite3.Connection, names: Iterable[str], lasts: timedelta, run: str | None = None
) -> dict[str, int] | Lease:
    """Take all names for this process and answer their tokens; or take none, and answer one that is held."""
    now, pid, host = datetime.now(UTC), os.getpid(), this_host()
    wanted = tuple(dict.fromkeys(names))
    found = {name: find(db, name) for name in wanted}
    for lease in found.values():
        if lease is not None and lease.held(now):
            return lease
    tokens = {name: lease.token + 1 if lease else 1 for name, lease in found.items()}
    birth, until = birth_of(pid), (now + lasts).isoformat()
    rows = [
        (name, token, run, host.name, host.machine, pid, birth, now.isoformat(), until)
        for name, token in tokens.items()
    ]
    db.executemany(f"INSERT OR REPLACE INTO leases ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    return tokens


def renew(db: sqlite3.Connection, tokens: Mapping[str, int], lasts: timedelta, run: str | None = None) -> str | None:
    """Put off the end of each; answers the first that another process has taken, None if all are still ours.

    One that has expired but was taken by nobody is ours as before: its token says so.
    """
    now = datetime.now(UTC)
    for name, token in tokens.items():
        changed = db.execute(
            "UPDATE leases SET heartbeat = ?, expires = ?, run = coalesce(?, run)"
            " WHERE name = ? AND token = ? AND pid IS NOT NULL",
            [now.isoformat(), (now + lasts).isoformat(), run, name, token],
        )
        if changed.rowcount != 1:
            return name
    return None


def give_back(db: sqlite3.Connection, tokens: Mapping[str, int]) -> None:
    """Free what is still ours. The row stays: its token is the one to go on from."""
    db.executemany(
        "UPDATE leases SET run = NULL, host = NULL, machine = NULL, pid = NULL, process = NULL, heartbeat = NULL,"
        " expires = NULL WHERE name = ? AND token = ?",
        list(tokens.items()),
    )
