"""What `rekappa clean` takes out of the run store: code that nobody needs, and history when it is told to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rekappa.home import Home
from rekappa.publish.forget import forget_code, forget_history, forget_runs, old_runs
from rekappa.store import runs
from rekappa.store.kept import keep_code, kept_files, kept_folder
from rekappa.store.record import Batch, Kind, Run, Start, State
from rekappa.store.runs import RunStore


@pytest.fixture
def home(store_url: str, tmp_path: Path) -> Home:
    made = Home(tmp_path / ".rekappa")
    made.root.mkdir()
    made.store_address.write_text(store_url)
    return made


def test_code_of_runs_that_are_gone_goes_with_its_folders(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "JUST_KEPT", timedelta())
    store, app = RunStore.open(home), tmp_path / "app"
    app.mkdir()
    kept = {}
    for run in ("live_1", "backfill_1", "backfill_2"):
        (app / "app.py").write_text(run)
        code = keep_code(home, app)
        assert code.hash is not None
        store.record_start(Start(run, "", 0, code))
        kept[run] = code.hash, kept_folder(home, code.hash)
    digest, folder = kept["backfill_1"]
    dry = forget_code(store, home, {"backfill_1"}, timedelta(), dry_run=True)
    assert [(one.name, one.kept) for one in dry] == [(f"code {digest[:12]}", None)]
    assert folder.is_dir()
    assert forget_code(store, home, {"backfill_1"}, timedelta(), dry_run=False)[0].bytes == dry[0].bytes > 0
    assert not folder.exists()
    assert store.code(digest) is None
    for run in ("live_1", "backfill_2"):
        assert kept_files(home, kept[run][0]) == {"app.py": run.encode()}
        assert kept[run][1].is_dir()
    store.drop_code([kept["backfill_2"][0]])
    assert forget_code(store, home, {"backfill_1"}, timedelta(), dry_run=False) == []
    assert [folder.is_dir() for _, folder in kept.values()] == [True, False, False], "another machine had dropped it"


def test_old_micro_batches_of_live_runs_go_when_told(home: Home) -> None:
    store, now = RunStore.open(home), datetime.now(UTC)
    for name, kind in (("live_1", Kind.LIVE), ("backfill_1", Kind.BACKFILL)):
        store.create(Run(name, "rmi", kind, "f"))
        store.record_batches(Batch(name, "q", n, (), None, now - timedelta(days=9 - n)) for n in range(10))
    found = forget_history(store, store.runs(), timedelta(days=3, hours=12), dry_run=True)
    assert [(one.run, one.rows) for one in found] == [("live_1", 5)]
    assert store.batch_count("live_1") == 10
    forget_history(store, store.runs(), timedelta(days=3, hours=12), dry_run=False)
    assert [batch.number for batch in store.batches("live_1", "q")] == [5, 6, 7, 8, 9]
    assert store.batch_count("backfill_1") == 10


def test_runs_that_nobody_has_heard_of_are_forgotten_but_not_what_goes_on(home: Home) -> None:
    store, now = RunStore.open(home), datetime.now(UTC)
    long_ago, lately = now - timedelta(days=100), now - timedelta(days=1)

    def made(name: str, kind: Kind, state: State, at: datetime, **spec: Any) -> None:
        store.create(Run(name, "rmi", kind, "f", state, created=at, ended=None if state.going else at, spec=spec))
        store.record_batches([Batch(name, "q", 0, (), None, at)])

    made("live_1", Kind.LIVE, State.STOPPED, long_ago - timedelta(days=3))
    made("live_2", Kind.LIVE, State.STOPPED, long_ago - timedelta(days=2))
    made("live_3", Kind.LIVE, State.STOPPED, long_ago - timedelta(days=2), elsewhere={"out": "test"})
    made("archive_1", Kind.ARCHIVE, State.STOPPED, long_ago, tables={"a": "lake.e.a"})
    made("backfill_1", Kind.BACKFILL, State.FINISHED, long_ago)
    made("backfill_2", Kind.BACKFILL, State.FAILED, long_ago)
    made("backfill_3", Kind.BACKFILL, State.FAILED, lately)
    gone = old_runs(store.runs("rmi"), timedelta(days=90), now)
    assert {run.id for run in gone} == {"live_1", "backfill_1", "backfill_2"}
    assert {one.run for one in forget_runs(store, gone, dry_run=True)} == {run.id for run in gone}
    assert len(store.runs("rmi")) == 7
    forget_runs(store, gone, dry_run=False)
    assert {run.id for run in store.runs("rmi")} == {"live_2", "live_3", "archive_1", "backfill_3"}
    assert (store.batch_count("backfill_1"), store.batch_count("live_2")) == (0, 1)


def test_more_runs_than_a_statement_takes_are_forgotten_at_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_AT_ONCE", 2)
    store = RunStore.open(home)
    for name in ("live_0", "live_1", "live_4", "live_x"):
        store.create(Run(name, "rmi", Kind.LIVE, "f"))
    store.forget([f"live_{number}" for number in range(5)])
    assert [run.id for run in store.runs()] == ["live_x"]
