"""Bringing an older store up to the newest tables: one step for each version, only forward.

A new store is made as `tables` has it, at once. A change of the tables is a change there and a step here, which is
never edited once it was released and says its SQL itself: `tables` moves on. Steps up to 4 are SQLite's alone,
PostgreSQL begins there. A few numbers in a row need no Alembic: its branches, downgrades and generated scripts would
answer no question that is asked here.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from sqlalchemy import Connection

from rekappa.stack.process import birth_of
from rekappa.store.dialects import Dialect, clock
from rekappa.store.host import this_host
from rekappa.store.tables import METADATA


def _leases(db: Connection) -> None:
    """Who is at work moves from the runs to leases; a process that is at work now keeps its run for a day."""
    db.exec_driver_sql(
        "CREATE TABLE leases (name TEXT PRIMARY KEY, token INTEGER NOT NULL, run TEXT, host TEXT, machine TEXT,"
        " pid INTEGER, process TEXT, heartbeat TEXT, expires TEXT) WITHOUT ROWID"
    )
    now, host = clock(db), this_host()
    for run, pid, started in db.exec_driver_sql("SELECT id, pid, process FROM runs WHERE pid IS NOT NULL").all():
        birth = birth_of(pid)
        if birth is not None and birth.rsplit("/", 1)[-1] == started:
            until = (now + timedelta(days=1)).isoformat()
            row = (f"run {run}", 1, run, host.name, host.machine, pid, birth, now.isoformat(), until)
            db.exec_driver_sql("INSERT INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    db.exec_driver_sql("ALTER TABLE runs DROP COLUMN pid")
    db.exec_driver_sql("ALTER TABLE runs DROP COLUMN process")
    db.exec_driver_sql("ALTER TABLE runs ADD COLUMN logs TEXT NOT NULL DEFAULT '[]'")


def _starts(db: Connection) -> None:
    """Which code each query ran, from which batch on."""
    db.exec_driver_sql(
        "CREATE TABLE starts (run TEXT NOT NULL, query TEXT NOT NULL, batch INTEGER NOT NULL, code TEXT NOT NULL,"
        " target TEXT NOT NULL, at TEXT NOT NULL, PRIMARY KEY (run, query, batch)) WITHOUT ROWID"
    )


def _code(db: Connection) -> None:
    """Kept code moves from the folder beside the file into the store; wishes from files beside the checkpoints."""
    db.exec_driver_sql("ALTER TABLE runs ADD COLUMN wish TEXT NOT NULL DEFAULT 'go'")
    db.exec_driver_sql("CREATE TABLE code (hash TEXT PRIMARY KEY, files BLOB NOT NULL, kept TEXT NOT NULL)")
    now = clock(db).isoformat()
    for file in sorted((Path(db.engine.url.database or "").parent / "code").glob("*.zip")):
        if not file.name.startswith("."):
            db.exec_driver_sql("INSERT INTO code VALUES (?, ?, ?)", (file.stem, file.read_bytes(), now))


def _speeds(db: Connection) -> None:
    """How fast jobs ran."""
    db.exec_driver_sql(
        "CREATE TABLE speeds (run TEXT NOT NULL, job TEXT NOT NULL, app TEXT NOT NULL, mode TEXT NOT NULL,"
        " state TEXT NOT NULL, rows BIGINT NOT NULL, seconds DOUBLE PRECISION NOT NULL,"
        f" at {'TEXT' if db.dialect.name == 'sqlite' else 'TIMESTAMP WITH TIME ZONE'} NOT NULL, PRIMARY KEY (run, job))"
    )


_STEPS: dict[int, Callable[[Connection], None]] = {2: _leases, 3: _starts, 4: _code, 5: _speeds}
VERSION = max(_STEPS)


def bring_up_to_date(db: Connection, dialect: Dialect) -> None:
    """Make the tables, or change them step by step. Called again, or by two processes at once, it does no more."""
    dialect.alone(db)
    version = dialect.version(db)
    if version == 0:
        dialect.set_version(db, VERSION)
        METADATA.create_all(db)
    for number in range(version + 1, VERSION + 1) if version else ():
        _STEPS[number](db)
        dialect.set_version(db, number)
