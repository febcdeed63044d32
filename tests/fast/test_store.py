"""The run store: what is written is read back, by other processes too."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from rekappa.cli.main import main
from rekappa.errors import RunError
from rekappa.store.database import VERSION
from rekappa.store.record import Batch, Kind, Position, Run, State, new_run_id
from rekappa.store.runs import RunStore


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs.db")


def a_run(**fields: object) -> Run:
    given = {"id": new_run_id(Kind.LIVE), "app": "rmi", "kind": Kind.LIVE, "folder": "apps/rmi"}
    return Run(**{**given, **fields})  # type: ignore[arg-type]


def test_a_run_is_read_back_as_it_was_written(store: RunStore) -> None:
    run = store.create(a_run(spec={"regions": ["eu"]}, progress={"rows": 0}))
    assert store.run(run.id) == run
    assert store.run(run.id[:-1]) == run


def test_unknown_and_ambiguous_ids_are_refused(store: RunStore) -> None:
    store.create(a_run(id="live_1"))
    store.create(a_run(id="live_2"))
    with pytest.raises(RunError, match="Cannot find run 'nope'"):
        store.run("nope")
    with pytest.raises(RunError, match="begins 2 run ids"):
        store.run("live")
    with pytest.raises(RunError, match="Cannot find run ''"):
        store.run("")


def test_batches_are_kept_in_order_and_written_once(store: RunStore) -> None:
    def batch(number: int, end: int) -> Batch:
        moment = datetime(2026, 11, 1, 13, number % 60, tzinfo=UTC)
        return Batch("r", "q", number, (Position("plays", "eu", "plays", {0: end, 10: 7}),), None, moment)

    store.record_batches([batch(1, 10), batch(0, 5)])
    store.record_batches([batch(1, 99), batch(2, 20)])
    assert [b.positions[0].ends for b in store.batches("r", "q")] == [{0: 5, 10: 7}, {0: 10, 10: 7}, {0: 20, 10: 7}]
    assert store.last_batch("r", "q") == 2
    assert store.last_batch("r", "other") is None


def test_a_newer_store_is_refused_with_both_numbers(store: RunStore, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "runs.db")) as db:
        db.execute("PRAGMA user_version = 77")
    with pytest.raises(RunError, match=f"version 77, this rekappa knows {VERSION}"):
        RunStore(tmp_path / "runs.db")


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
        store = RunStore(tmp_path / "runs.db")
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


def test_a_command_that_only_looks_makes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["runs"], ["runs", "live_1"], ["stop", "live_1"], ["resume", "b"], ["pause", "b"], ["undo", "b"]):
        answer = CliRunner().invoke(main, words)
        assert answer.exit_code == 2, answer.output
        assert "Cannot find a project in" in answer.output
    assert list(tmp_path.iterdir()) == []


def test_an_error_is_kept_without_the_password_in_it(store: RunStore) -> None:
    run = store.create(a_run())
    store.update(run.id, error="Cannot reach https://me:hunter2@search.example/index")
    assert store.run(run.id).error == "Cannot reach https://me:********@search.example/index"
