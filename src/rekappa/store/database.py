"""The run store's file: SQLite, shared by every process of a project, with a version that only grows.

A change of the schema is a new step at the end of `_STEPS`; steps that were released are never edited.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rekappa.errors import RunError
from rekappa.stack.process import birth_of
from rekappa.store.host import this_host

BUSY = 30.0
"""Seconds to wait for another process's transaction; each takes milliseconds."""


def _first(db: sqlite3.Connection) -> None:
    db.execute(
        "CREATE TABLE IF NOT EXISTS runs ("
        "id TEXT PRIMARY KEY, app TEXT NOT NULL, kind TEXT NOT NULL, folder TEXT NOT NULL, state TEXT NOT NULL,"
        " created TEXT NOT NULL, started TEXT, ended TEXT, pid INTEGER, process TEXT,"
        " spec TEXT NOT NULL, progress TEXT NOT NULL, validation TEXT, publication TEXT, error TEXT)"
    )
    db.execute(
        "CREATE TABLE IF NOT EXISTS batches ("
        "run TEXT NOT NULL, query TEXT NOT NULL, batch INTEGER NOT NULL, positions TEXT NOT NULL,"
        " watermark TEXT, committed TEXT NOT NULL, PRIMARY KEY (run, query, batch)) WITHOUT ROWID"
    )


def _leases(db: sqlite3.Connection) -> None:
    """Who is at work moves from the runs to leases; a process that is at work now keeps its run for a day."""
    db.execute(
        "CREATE TABLE leases (name TEXT PRIMARY KEY, token INTEGER NOT NULL, run TEXT, host TEXT, machine TEXT,"
        " pid INTEGER, process TEXT, heartbeat TEXT, expires TEXT) WITHOUT ROWID"
    )
    now, host = datetime.now(UTC), this_host()
    for run, pid, started in db.execute("SELECT id, pid, process FROM runs WHERE pid IS NOT NULL").fetchall():
        birth = birth_of(pid)
        if birth is not None and birth.rsplit("/", 1)[-1] == started:
            until = (now + timedelta(days=1)).isoformat()
            row = [f"run {run}", 1, run, host.name, host.machine, pid, birth, now.isoformat(), until]
            db.execute("INSERT INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    db.execute("ALTER TABLE runs DROP COLUMN pid")
    db.execute("ALTER TABLE runs DROP COLUMN process")
    db.execute("ALTER TABLE runs ADD COLUMN logs TEXT NOT NULL DEFAULT '[]'")


def _starts(db: sqlite3.Connection) -> None:
    """Which code each query ran, from which batch on."""
    db.execute(
        "CREATE TABLE starts (run TEXT NOT NULL, query TEXT NOT NULL, batch INTEGER NOT NULL, code TEXT NOT NULL,"
        " target TEXT NOT NULL, at TEXT NOT NULL, PRIMARY KEY (run, query, batch)) WITHOUT ROWID"
    )


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


_STEPS: tuple[Callable[[sqlite3.Connection], None], ...] = (_first, _leases, _starts)
VERSION = len(_STEPS)


class Database:
    """Opens connections; the first of a new version brings the file up to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._use_wal()
        with self.reading() as db:
            version = _version(db)
        if version > VERSION:
            raise RunError(
                f"Cannot open run store {path}: it has version {version}, this rekappa knows {VERSION}",
                hint="Upgrade rekappa.",
            )
        if version < VERSION:
            with self.changing() as db:
                # Looked at again: another process may have done it meanwhile.
                for number, step in enumerate(_STEPS[_version(db) :], _version(db) + 1):
                    step(db)
                    db.execute(f"PRAGMA user_version = {number}")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one state of the store, that of its first statement."""
        with self._connected() as db:
            db.execute("BEGIN")
            yield db

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, alone from its first read to its last write: what it looked at can't change meanwhile."""
        with self._connected() as db:
            db.execute("BEGIN IMMEDIATE")
            with db:
                yield db

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self._path, timeout=BUSY)
        try:
            yield db
        finally:
            db.close()

    def _use_wal(self) -> None:
        """Readers beside one writer. Written into the file once; two processes that do it at once get no queue."""
        deadline = time.monotonic() + BUSY
        with self._connected() as db:
            while True:
                try:
                    db.execute("PRAGMA journal_mode = WAL")
                    return
                except sqlite3.OperationalError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)
