"""The run store: what is written is read back, by other processes too."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rekappa.errors import RunError
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


def test_a_run_is_claimed_by_one_process_at_a_time(store: RunStore, tmp_path: Path) -> None:
    run = store.create(a_run())
    assert store.claim(run.id).state is State.RUNNING
    with pytest.raises(RunError, match=f"process {os.getpid()} is at work"):
        store.claim(run.id)
    assert store.end(run.id, State.STOPPED).pid is None
    claim = (
        "import sys; from pathlib import Path; from rekappa.store.runs import RunStore;"
        "RunStore(Path(sys.argv[1])).claim(sys.argv[2])"
    )
    subprocess.run([sys.executable, "-c", claim, str(tmp_path / "runs.db"), run.id], check=True)
    assert store.run(run.id).state is State.DIED, "the process that claimed it has ended without saying so"
    assert store.claim(run.id).state is State.RUNNING


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
    with sqlite3.connect(tmp_path / "runs.db") as db:
        db.execute("PRAGMA user_version = 7")
    with pytest.raises(RunError, match="version 7, this rekappa knows 1"):
        RunStore(tmp_path / "runs.db")
