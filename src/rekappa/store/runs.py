"""The run store: which runs there were, where they are, and production's micro-batches.

SQLite, one file per project folder, safe for several processes. The store never says more than the
checkpoint does: batches are copied from Spark's own log after it has committed them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.masking import hidden
from rekappa.store import leases
from rekappa.store.claim import Claim
from rekappa.store.code import Code
from rekappa.store.database import Database
from rekappa.store.leases import Lease
from rekappa.store.record import Batch, Kind, Position, Run, Start, State

_TIMES = ("created", "started", "ended")
_JSON = ("spec", "progress", "validation", "publication", "logs")
_FROM_LEASE = ("pid", "host")


class RunStore:
    """Every method is one short transaction; nothing is cached between calls."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path)

    @classmethod
    def open(cls, home: Home) -> RunStore:
        """The project's store, made if there is none yet."""
        return cls(home.made().store)

    @classmethod
    def existing(cls, home: Home) -> RunStore:
        """The project's store, for commands that only look or go on: refuses a folder in which nothing has run."""
        if not home.existing().store.is_file():
            raise RunError(f"Cannot find any run in {home.root}: nothing has run there yet")
        return cls(home.store)

    def create(self, run: Run) -> Run:
        row = _to_row(run)
        names = ", ".join(row)
        marks = ", ".join("?" for _ in row)
        with self._database.changing() as db:
            db.execute(f"INSERT INTO runs ({names}) VALUES ({marks})", list(row.values()))
        return run

    def run(self, run_id: str) -> Run:
        """One run by its id or a unique beginning of it."""
        found = [run for run in self.runs() if run.id.startswith(run_id)] if run_id else []
        exact = [run for run in found if run.id == run_id]
        if len(exact or found) == 1:
            return (exact or found)[0]
        if found:
            raise RunError(f"Cannot choose a run: {run_id!r} begins {len(found)} run ids", hint="Write more of the id.")
        raise RunError(f"Cannot find run {run_id!r}", hint="`rekappa runs` lists them.")

    def runs(self, app: str | None = None, kind: Kind | None = None) -> list[Run]:
        """Newest first. A run that no process holds any more is answered as died."""
        with self._database.reading() as db:
            held = {lease.run: lease for lease in leases.all_held(db)}
            cursor = db.execute("SELECT * FROM runs ORDER BY created DESC, id DESC")
            names = [column[0] for column in cursor.description]
            found = [_from_row(dict(zip(names, row, strict=True))) for row in cursor]
        return [
            _with_holder(run, held.get(run.id)) for run in found if app in (None, run.app) and kind in (None, run.kind)
        ]

    def update(self, run_id: str, **changes: Any) -> Run:
        """Change fields of a run that no process is at work on; the one at work has its `Claim`."""
        with self._database.changing() as db:
            _change(db, run_id, changes)
        return self.run(run_id)

    def claim(self, names: Sequence[str], doing: str) -> Claim:
        """Take the leases of these names for this process, all or none; refused while another holds one of them.

        `doing` is what could not be done then, for the error: "run 'rmi'".
        """
        return Claim(self._database, _change, names, doing)

    def lease(self, name: str) -> Lease | None:
        """Who holds the name, or held it last."""
        with self._database.reading() as db:
            return leases.find(db, name)

    def record_batches(self, batches: Iterable[Batch]) -> None:
        """Add batches; one that is there already is left as it is."""
        rows = [
            (
                batch.run,
                batch.query,
                batch.number,
                json.dumps([_position_row(position) for position in batch.positions]),
                batch.watermark.isoformat() if batch.watermark else None,
                batch.committed.isoformat(),
            )
            for batch in batches
        ]
        with self._database.changing() as db:
            db.executemany("INSERT OR IGNORE INTO batches VALUES (?, ?, ?, ?, ?, ?)", rows)

    def batches(self, run: str, query: str) -> list[Batch]:
        """All recorded micro-batches of one query, in order."""
        with self._database.reading() as db:
            rows = db.execute("SELECT * FROM batches WHERE run = ? AND query = ? ORDER BY batch", [run, query])
            return [
                Batch(row[0], row[1], row[2], _positions(row[3]), _moment(row[4]), datetime.fromisoformat(row[5]))
                for row in rows
            ]

    def drop_batches(self, run: str) -> int:
        """Forget a run's micro-batches; answers how many there were."""
        with self._database.changing() as db:
            return db.execute("DELETE FROM batches WHERE run = ?", [run]).rowcount

    def batch_count(self, run: str) -> int:
        with self._database.reading() as db:
            return int(db.execute("SELECT count(*) FROM batches WHERE run = ?", [run]).fetchone()[0])

    def last_batch(self, run: str, query: str) -> int | None:
        with self._database.reading() as db:
            found = db.execute("SELECT max(batch) FROM batches WHERE run = ? AND query = ?", [run, query]).fetchone()
        return None if found[0] is None else int(found[0])

    def record_start(self, start: Start) -> None:
        """Say which code a query runs from a batch on. A start that got no batch done is replaced by the next one."""
        code = json.dumps(start.code.as_json())
        row = [start.run, start.query, start.batch, code, start.target, start.at.isoformat()]
        with self._database.changing() as db:
            db.execute("INSERT OR REPLACE INTO starts VALUES (?, ?, ?, ?, ?, ?)", row)

    def starts(self, run: str, query: str | None = None) -> list[Start]:
        """The starts of a run, or of one of its queries, in the order of their batches."""
        with self._database.reading() as db:
            rows = db.execute("SELECT * FROM starts WHERE run = ? ORDER BY batch, at, query", [run]).fetchall()
        return [
            Start(row[0], row[1], row[2], Code.from_json(json.loads(row[3])), row[4], datetime.fromisoformat(row[5]))
            for row in rows
            if query in (None, row[1])
        ]


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _position_row(position: Position) -> dict[str, Any]:
    ends = {str(partition): end for partition, end in sorted(position.ends.items())}
    row = {"source": position.source, "region": position.region, "topic": position.topic, "ends": ends}
    return row | {"reader": position.reader} if position.reader else row


def _positions(text: str) -> tuple[Position, ...]:
    return tuple(
        Position(
            row["source"],
            row["region"],
            row["topic"],
            {int(part): end for part, end in row["ends"].items()},
            row.get("reader", 0),
        )
        for row in json.loads(text)
    )


def _to_row(run: Run) -> dict[str, Any]:
    return _encoded({name: getattr(run, name) for name in Run.__dataclass_fields__ if name not in _FROM_LEASE})


def _encoded(row: dict[str, Any]) -> dict[str, Any]:
    if row.get("error"):
        row["error"] = hidden(row["error"])
    for name in row.keys() & set(_TIMES):
        row[name] = row[name].isoformat() if row[name] else None
    for name in row.keys() & set(_JSON):
        row[name] = None if row[name] is None else json.dumps(row[name], default=str)
    return row


def _from_row(row: dict[str, Any]) -> Run:
    for name in _TIMES:
        row[name] = _moment(row[name])
    for name in _JSON:
        row[name] = None if row[name] is None else json.loads(row[name])
    return Run(**{**row, "kind": Kind(row["kind"]), "state": State(row["state"]), "logs": tuple(row["logs"])})


def _with_holder(run: Run, lease: Lease | None) -> Run:
    if not run.state.going:
        return run
    return replace(run, state=State.DIED) if lease is None else replace(run, pid=lease.pid, host=lease.host)


def _change(db: sqlite3.Connection, run_id: str, changes: dict[str, Any]) -> None:
    row = _encoded(dict(changes))
    assignments = ", ".join(f"{name} = ?" for name in row)
    if db.execute(f"UPDATE runs SET {assignments} WHERE id = ?", [*row.values(), run_id]).rowcount != 1:
        raise RunError(f"Cannot find run {run_id!r}", hint="`rekappa runs` lists them.")
