"""The run store: which runs there were, where they are, and production's micro-batches.

SQLite, one file per project folder, safe for several processes. The store never says more than the
checkpoint does: batches are copied from Spark's own log after it has committed them.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.store.code import Code
from rekappa.store.process import alive, fingerprint
from rekappa.store.record import Batch, Kind, Position, Run, Start, State

VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
  id TEXT PRIMARY KEY, app TEXT NOT NULL, kind TEXT NOT NULL, folder TEXT NOT NULL, state TEXT NOT NULL,
  created TEXT NOT NULL, started TEXT, ended TEXT, pid INTEGER, process TEXT,
  spec TEXT NOT NULL, progress TEXT NOT NULL, validation TEXT, publication TEXT, error TEXT);
CREATE TABLE IF NOT EXISTS batches (
  run TEXT NOT NULL, query TEXT NOT NULL, batch INTEGER NOT NULL, positions TEXT NOT NULL,
  watermark TEXT, committed TEXT NOT NULL, PRIMARY KEY (run, query, batch)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS starts (
  run TEXT NOT NULL, query TEXT NOT NULL, batch INTEGER NOT NULL, code TEXT NOT NULL, target TEXT NOT NULL,
  at TEXT NOT NULL, PRIMARY KEY (run, query, batch)) WITHOUT ROWID;
"""
_TIMES = ("created", "started", "ended")
_JSON = ("spec", "progress", "validation", "publication")


class RunStore:
    """Every method is one short transaction; nothing is cached between calls."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        with self._connect() as db:
            version: int = db.execute("PRAGMA user_version").fetchone()[0]
            if version > VERSION:
                raise RunError(
                    f"Cannot open run store {path}: it has version {version}, this rekappa knows {VERSION}",
                    hint="Upgrade rekappa.",
                )
            db.executescript(_SCHEMA)
            db.execute(f"PRAGMA user_version = {VERSION}")

    @classmethod
    def open(cls, home: Home) -> RunStore:
        return cls(home.store)

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self._path, timeout=30)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            with db:
                yield db
        finally:
            db.close()

    def create(self, run: Run) -> Run:
        row = _to_row(run)
        names = ", ".join(row)
        marks = ", ".join("?" for _ in row)
        with self._connect() as db:
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
        """Newest first. A run whose process is gone is answered as died."""
        with self._connect() as db:
            cursor = db.execute("SELECT * FROM runs ORDER BY created DESC, id DESC")
            names = [column[0] for column in cursor.description]
            runs = [_from_row(dict(zip(names, row, strict=True))) for row in cursor]
        return [
            replace(run, state=State.DIED) if run.state.going and not alive(run.pid, run.process) else run
            for run in runs
            if app in (None, run.app) and kind in (None, run.kind)
        ]

    def update(self, run_id: str, **changes: Any) -> Run:
        """Change fields of a run, by their names in `Run`."""
        row = _to_row(replace(self.run(run_id), **changes))
        chosen = {name: row[name] for name in changes}
        assignments = ", ".join(f"{name} = ?" for name in chosen)
        with self._connect() as db:
            db.execute(f"UPDATE runs SET {assignments} WHERE id = ?", [*chosen.values(), run_id])
        return self.run(run_id)

    def claim(self, run_id: str) -> Run:
        """Mark the run as running in this process; refuses one that another process is at work on."""
        with self._connect() as db:
            db.execute("BEGIN IMMEDIATE")
            found = db.execute("SELECT state, pid, process FROM runs WHERE id = ?", [run_id]).fetchone()
            if found is not None and State(found[0]).going and alive(found[1], found[2]):
                raise RunError(f"Cannot start run {run_id}: process {found[1]} is at work on it")
            now, pid = datetime.now(UTC).isoformat(), os.getpid()
            db.execute(
                "UPDATE runs SET state = ?, pid = ?, process = ?, ended = NULL, error = NULL,"
                " started = coalesce(started, ?) WHERE id = ?",
                [State.RUNNING, pid, fingerprint(pid), now, run_id],
            )
        return self.run(run_id)

    def end(self, run_id: str, state: State, error: str | None = None) -> Run:
        return self.update(run_id, state=state, ended=datetime.now(UTC), error=error, pid=None, process=None)

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
        with self._connect() as db:
            db.executemany("INSERT OR IGNORE INTO batches VALUES (?, ?, ?, ?, ?, ?)", rows)

    def batches(self, run: str, query: str) -> list[Batch]:
        """All recorded micro-batches of one query, in order."""
        with self._connect() as db:
            rows = db.execute("SELECT * FROM batches WHERE run = ? AND query = ? ORDER BY batch", [run, query])
            return [
                Batch(row[0], row[1], row[2], _positions(row[3]), _moment(row[4]), datetime.fromisoformat(row[5]))
                for row in rows
            ]

    def last_batch(self, run: str, query: str) -> int | None:
        with self._connect() as db:
            found = db.execute("SELECT max(batch) FROM batches WHERE run = ? AND query = ?", [run, query]).fetchone()
        return None if found[0] is None else int(found[0])

    def record_start(self, start: Start) -> None:
        """Say which code a query runs from a batch on. A start that got no batch done is replaced by the next one."""
        code = json.dumps(start.code.as_json())
        row = [start.run, start.query, start.batch, code, start.target, start.at.isoformat()]
        with self._connect() as db:
            db.execute("INSERT OR REPLACE INTO starts VALUES (?, ?, ?, ?, ?, ?)", row)

    def starts(self, run: str, query: str | None = None) -> list[Start]:
        """The starts of a run, or of one of its queries, in the order of their batches."""
        with self._connect() as db:
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
    row = {name: getattr(run, name) for name in Run.__dataclass_fields__}
    for name in _TIMES:
        row[name] = row[name].isoformat() if row[name] else None
    for name in _JSON:
        row[name] = None if row[name] is None else json.dumps(row[name], default=str)
    return row


def _from_row(row: dict[str, Any]) -> Run:
    for name in _TIMES:
        row[name] = _moment(row[name])
    for name in _JSON:
        row[name] = None if row[name] is None else json.loads(row[name])
    return Run(**{**row, "kind": Kind(row["kind"]), "state": State(row["state"])})
