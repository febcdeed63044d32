"""Stores of earlier versions are brought up to date, once, and go on."""

from __future__ import annotations

import json
import os
import sqlite3
import zipfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import inspect

from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.store.address import Address
from rekappa.store.code import read_code
from rekappa.store.database import Database
from rekappa.store.kept import kept_files
from rekappa.store.record import Kind, Run, Standing, State, Wish
from rekappa.store.runs import RunStore


def write_app(folder: Path) -> Path:
    folder.mkdir()
    (folder / "app.py").write_text("x = 1\n")
    (folder / "rekappa.yaml").write_text("app: rmi\n")
    return folder


FIRST_VERSION = """
CREATE TABLE runs (
  id TEXT PRIMARY KEY, app TEXT NOT NULL, kind TEXT NOT NULL, folder TEXT NOT NULL, state TEXT NOT NULL,
  created TEXT NOT NULL, started TEXT, ended TEXT, pid INTEGER, process TEXT,
  spec TEXT NOT NULL, progress TEXT NOT NULL, validation TEXT, publication TEXT, error TEXT);
CREATE TABLE batches (
  run TEXT NOT NULL, query TEXT NOT NULL, batch INTEGER NOT NULL, positions TEXT NOT NULL,
  watermark TEXT, committed TEXT NOT NULL, PRIMARY KEY (run, query, batch)) WITHOUT ROWID;
PRAGMA user_version = 1;
"""


THIRD_VERSION = """
CREATE TABLE runs (
  id TEXT PRIMARY KEY, app TEXT NOT NULL, kind TEXT NOT NULL, folder TEXT NOT NULL, state TEXT NOT NULL,
  created TEXT NOT NULL, started TEXT, ended TEXT,
  spec TEXT NOT NULL, progress TEXT NOT NULL, validation TEXT, publication TEXT, error TEXT,
  logs TEXT NOT NULL DEFAULT '[]');
CREATE TABLE batches (
  run TEXT NOT NULL, query TEXT NOT NULL, batch INTEGER NOT NULL, positions TEXT NOT NULL,
  watermark TEXT, committed TEXT NOT NULL, PRIMARY KEY (run, query, batch)) WITHOUT ROWID;
CREATE TABLE leases (
  name TEXT PRIMARY KEY, token INTEGER NOT NULL, run TEXT, host TEXT, machine TEXT,
  pid INTEGER, process TEXT, heartbeat TEXT, expires TEXT) WITHOUT ROWID;
CREATE TABLE starts (
  run TEXT NOT NULL, query TEXT NOT NULL, batch INTEGER NOT NULL, code TEXT NOT NULL,
  target TEXT NOT NULL, at TEXT NOT NULL, PRIMARY KEY (run, query, batch)) WITHOUT ROWID;
INSERT INTO runs VALUES ('r', 'rmi', 'live', 'f', 'running', '2026-11-01T00:00:00+00:00', '2026-11-01T00:00:01.5+00:00',
  NULL, '{"a": [1]}', '{}', NULL, '{"state": "published"}', NULL, '["spark-1.log"]');
INSERT INTO batches VALUES ('r', 'q', 3, '[{"source": "s", "region": "eu", "topic": "t", "ends": {"0": 7}}]',
  '2026-11-01T00:00:00+00:00', '2026-11-01T00:01:00.25+00:00');
INSERT INTO leases VALUES ('run r', 7, 'r', 'there', 'there/1', 12, '1/2', '2026-11-01T00:00:00+00:00',
  '2999-01-01T00:00:00+00:00');
PRAGMA user_version = 3;
"""


def test_a_store_of_the_third_version_goes_on_with_its_code(tmp_path: Path) -> None:
    """The version before PostgreSQL: code lay in files beside it; a run of another machine stays that machine's."""
    home = Home(tmp_path)
    code, files = read_code(write_app(tmp_path / "app"))
    assert code.hash is not None
    home.code.mkdir()
    with zipfile.ZipFile(home.code / f"{code.hash}.zip", "w") as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    (home.code / f".{code.hash}.77").write_bytes(b"half of one")
    with closing(sqlite3.connect(home.store)) as db:
        db.executescript(THIRD_VERSION)
        starts = [("r", "q", 0, json.dumps(code.as_json()), "lake.t", "2026-11-01T00:00:00+00:00")]
        db.executemany("INSERT INTO starts VALUES (?, ?, ?, ?, ?, ?)", starts)
        db.commit()
    store = RunStore.existing(home)
    run = store.run("r")
    assert (run.state, run.host, run.spec, run.logs) == (State.RUNNING, "there", {"a": [1]}, ("spark-1.log",))
    assert (run.wish, run.publication) == (Wish.GO, {"state": "published"})
    assert run.started == datetime(2026, 11, 1, 0, 0, 1, 500000, tzinfo=UTC)
    assert store.batches("r", "q")[0].positions == (Standing("s", "eu", "t", {0: 7}),)
    assert store.starts("r")[0].code == code
    assert kept_files(home, code.hash) == files
    with pytest.raises(RunError, match="process 12 on there"), store.claim([], "go on") as claim:
        claim.begin("r")


def test_an_upgraded_store_has_the_tables_of_a_new_one(tmp_path: Path) -> None:
    RunStore(Address.of_file(tmp_path / "new.db"))
    with closing(sqlite3.connect(tmp_path / "old.db")) as db:
        db.executescript(FIRST_VERSION)
    RunStore(Address.of_file(tmp_path / "old.db"))

    def tables(name: str) -> dict[str, object]:
        with Database(Address.of_file(tmp_path / name)).reading() as db:
            found = inspect(db)
            return {
                table: {one["name"]: one["nullable"] or one["name"] in keys for one in found.get_columns(table)}
                for table in found.get_table_names()
                for keys in [found.get_pk_constraint(table)["constrained_columns"]]
            }

    assert tables("old.db") == tables("new.db")


def test_a_store_of_the_first_version_is_brought_up_to_date(tmp_path: Path) -> None:
    """Runs and batches stay; a run whose process is at work stays that process's, one whose process is gone died."""
    created = datetime(2026, 11, 1, tzinfo=UTC)
    own = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19]
    with closing(sqlite3.connect(tmp_path / "runs.db")) as db:
        db.executescript(FIRST_VERSION)
        for name, state, pid, process in (
            ("going", "running", os.getpid(), own),
            ("gone", "running", os.getpid(), "1"),
            ("done", "finished", None, None),
        ):
            row = (name, "rmi", "live", "f", state, created.isoformat(), pid, process, '{"a": 1}', "{}")
            db.execute(
                "INSERT INTO runs (id, app, kind, folder, state, created, pid, process, spec, progress)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )
        db.execute("INSERT INTO batches VALUES ('done', 'q', 0, '[]', NULL, ?)", [created.isoformat()])
        db.commit()
    for _ in range(2):
        store = RunStore(Address.of_file(tmp_path / "runs.db"))
        assert {run.id: (run.state, run.pid) for run in store.runs()} == {
            "going": (State.RUNNING, os.getpid()),
            "gone": (State.DIED, None),
            "done": (State.FINISHED, None),
        }
    assert store.run("done") == Run("done", "rmi", Kind.LIVE, "f", State.FINISHED, created, spec={"a": 1})
    assert [batch.number for batch in store.batches("done", "q")] == [0]
    with store.claim([], "go on") as claim:
        with pytest.raises(RunError, match=f"process {os.getpid()}"):
            claim.begin("going")
        claim.begin("gone")
