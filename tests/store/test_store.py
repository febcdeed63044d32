"""The run store, on SQLite and on PostgreSQL: what is written is read back, by other processes too."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import inspect, text, update

from rekappa.cli.main import main
from rekappa.errors import ConfigError, LeaseLost, RunError
from rekappa.store import runs
from rekappa.store.address import Address
from rekappa.store.code import Code
from rekappa.store.database import Database
from rekappa.store.dialects import dialect_of
from rekappa.store.migrations import VERSION
from rekappa.store.record import Batch, Kind, Run, Standing, Start, State, new_run_id
from rekappa.store.runs import RunStore
from rekappa.store.tables import LEASES


@pytest.fixture
def store(address: Address) -> RunStore:
    return RunStore(address)


def a_run(**fields: object) -> Run:
    given = {"id": new_run_id(Kind.LIVE), "app": "rmi", "kind": Kind.LIVE, "folder": "apps/rmi"}
    return Run(**{**given, **fields})  # type: ignore[arg-type]


def test_a_run_is_read_back_as_it_was_written(store: RunStore) -> None:
    run = store.create(a_run(spec={"regions": ["eu"]}, progress={"rows": 0}))
    assert store.run(run.id) == run
    assert store.run(run.id[:-1]) == run


def test_unknown_and_ambiguous_ids_are_refused(store: RunStore) -> None:
    for name in ("live_1", "live_2", "Live_2", "livex2"):
        store.create(a_run(id=name))
    assert store.run("live_2").id == "live_2"
    assert store.run("L").id == "Live_2"
    with pytest.raises(RunError, match="Cannot find run 'nope'"):
        store.run("nope")
    with pytest.raises(RunError, match="begins 2 run ids"):
        store.run("live_")
    with pytest.raises(RunError, match="Cannot find run ''"):
        store.run("")


def test_last_is_the_newest_backfill(store: RunStore) -> None:
    store.create(a_run(id="live_1"))
    with pytest.raises(RunError, match="there has been none"):
        store.run("last")
    for name, day in (("backfill_2", 2), ("backfill_3", 3), ("backfill_1", 1)):
        store.create(a_run(id=name, kind=Kind.BACKFILL, created=datetime(2026, 11, day, tzinfo=UTC)))
    store.create(a_run(id="control_9", kind=Kind.CONTROL))
    assert store.run("last").id == "backfill_3"


def test_batches_are_kept_in_order_and_written_once(store: RunStore) -> None:
    def batch(number: int, end: int) -> Batch:
        moment = datetime(2026, 11, 1, 13, number % 60, tzinfo=UTC)
        return Batch("r", "q", number, (Standing("plays", "eu", "plays", {0: end, 10: 7}),), None, moment)

    store.record_batches([batch(1, 10), batch(0, 5)])
    store.record_batches([batch(1, 99), batch(2, 20)])
    assert [b.positions[0].ends for b in store.batches("r", "q")] == [{0: 5, 10: 7}, {0: 10, 10: 7}, {0: 20, 10: 7}]
    assert store.last_batch("r", "q") == 2
    assert store.last_batch("r", "other") is None


def test_a_newer_store_is_refused_with_both_numbers(store: RunStore, address: Address) -> None:
    with Database(address).changing() as db:
        dialect_of(address).set_version(db, 77)
    with pytest.raises(RunError, match=f"version 77, this rekappa knows {VERSION}"):
        RunStore(address)


@pytest.mark.parametrize("name", ["runs", "users"])
def test_tables_of_somebody_else_are_left_alone(address: Address, name: str) -> None:
    prefix = f'"{address.schema}".' if address.schema else ""
    with dialect_of(address).engine.begin() as db:
        if address.schema:
            db.execute(text(f'CREATE SCHEMA "{address.schema}"'))
        db.execute(text(f"CREATE TABLE {prefix}{name} (id INTEGER, pw TEXT)"))
    for _ in range(2):
        with pytest.raises(ConfigError, match=f"there is a table '{name}' already, and it is not rekappa's"):
            RunStore(address)
    with dialect_of(address).engine.begin() as db:
        assert inspect(db).get_table_names(schema=address.schema) == [name]


@pytest.mark.parametrize("number", [-1, VERSION, VERSION - 1])
def test_a_version_without_its_tables_is_refused(address: Address, number: int) -> None:
    with dialect_of(address).engine.begin() as db:
        dialect_of(address).set_version(db, number)
    with pytest.raises(
        ConfigError, match="its version is none" if number < 0 else f"version {number}, and has no table"
    ):
        RunStore(address)


@pytest.mark.parametrize("made", ["(number INTEGER)", "(major INTEGER, minor INTEGER)", "AS SELECT 'x' AS number"])
def test_a_table_of_versions_that_is_not_ours_is_refused(postgres_store: str, made: str) -> None:
    address = Address.parse(postgres_store)
    with dialect_of(address).engine.begin() as db:
        db.execute(text(f'CREATE SCHEMA "{address.schema}"'))
        db.execute(text(f'CREATE TABLE "{address.schema}".version {made}'))
    with pytest.raises(ConfigError, match="what it holds as its version is none") as refused:
        RunStore(address)
    assert f"schema={address.schema}" in refused.value.message


def test_a_file_of_runs_is_its_owners_alone(tmp_path: Path) -> None:
    file, before = tmp_path / "runs.db", os.umask(0o022)
    try:
        store = RunStore(Address.of_file(file))
    finally:
        os.umask(before)
    store.create(a_run())
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("runs.db*")} == {0o600}


def test_what_a_database_would_not_take_as_it_is(store: RunStore) -> None:
    """No number, bytes that are no text, a zone other than UTC, keys in their order."""
    elsewhere = datetime(2026, 11, 1, 13, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    progress = {"z": float("inf"), "a": "x\0y", "when": elsewhere}
    run = store.create(a_run(created=elsewhere, progress=progress))
    found = store.update(run.id, error="died\0 of it", publication=None, validation={"b": 1, "a": None})
    assert found.created == elsewhere
    assert found.created.utcoffset() == timedelta()
    assert list(found.progress.items()) == [("z", float("inf")), ("a", "x\0y"), ("when", str(elsewhere))]
    assert found.error == "died of it"
    assert (found.publication, list(found.validation or {})) == (None, ["b", "a"])


def test_what_several_add_to_a_record_at_once_is_all_there(store: RunStore) -> None:
    store.create(a_run(id="r"))

    def add(sink: str) -> None:
        store.amend("r", lambda run: {"publication": {**(run.publication or {}), sink: "published"}})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, "abcdefgh"))
    assert set(store.run("r").publication or {}) == set("abcdefgh")


def test_runs_are_listed_newest_first_and_chosen(store: RunStore) -> None:
    moment = datetime(2026, 11, 1, tzinfo=UTC)
    for number, (app, kind) in enumerate([("a", Kind.LIVE), ("b", Kind.LIVE), ("a", Kind.BACKFILL)]):
        store.create(a_run(id=f"r{number}", app=app, kind=kind, created=moment + timedelta(microseconds=number)))
    assert [run.id for run in store.runs()] == ["r2", "r1", "r0"]
    assert [run.id for run in store.runs("a")] == ["r2", "r0"]
    assert [run.id for run in store.runs("a", Kind.LIVE)] == ["r0"]


def test_old_batches_are_forgotten_but_for_the_one_to_begin_with(store: RunStore) -> None:
    start = datetime(2026, 11, 1, tzinfo=UTC)
    for query, count in (("q", 5), ("young", 1)):
        moments = [start + timedelta(hours=hour) for hour in range(-1, count)]
        store.record_batches(Batch("r", query, n - 1, (), None, moment) for n, moment in enumerate(moments))
    horizon = start + timedelta(hours=2, minutes=30)
    assert store.batch_count("r", horizon) == 4
    assert store.drop_batches("r", horizon) == 4
    assert [batch.number for batch in store.batches("r", "q")] == [2, 3, 4]
    assert [batch.number for batch in store.batches("r", "young")] == [0]
    assert store.drop_batches("r", horizon) == 0
    assert store.drop_batches("r") == 4
    assert store.last_batch("r", "q") is None


def test_code_that_only_runs_that_are_gone_ran_is_not_needed(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for digest in ("both", "gone", "live", "nobody"):
        store.keep_code(digest, b"12345")
    for run, digest in (("gone", "gone"), ("gone", "both"), ("other", "both"), ("live", "live")):
        store.record_start(Start(run, digest, 0, Code(digest)))
    assert store.unneeded_code({"gone"}, timedelta()) == {}, "the run of what was kept just now may not be recorded yet"
    monkeypatch.setattr(runs, "JUST_KEPT", timedelta())
    assert store.unneeded_code({"gone"}, timedelta(days=7)) == {}
    assert store.unneeded_code({"gone"}, timedelta()) == {"gone": 5, "nobody": 5}
    store.drop_code(["gone", "nobody"])
    assert [store.code(digest) for digest in ("both", "gone", "live", "nobody")] == [b"12345", None, b"12345", None]
    assert store.has_code("both")
    assert not store.has_code("gone")


def test_what_a_process_writes_that_lost_its_lease_is_not_there(store: RunStore, address: Address) -> None:
    """Batches, starts and the record: each is refused in the very transaction that would write it."""
    store.create(a_run(id="r"))
    with store.claim(["a"], "work") as claim:
        claim.begin("r")
        with Database(address).changing() as db:
            db.execute(update(LEASES).values(token=LEASES.c.token + 1))
        writes: list[Callable[[], None]] = [
            lambda: store.record_batches([Batch("r", "q", 0, (), None, datetime.now(UTC))], claim),
            lambda: store.record_start(Start("r", "q", 0, Code("c")), claim),
            lambda: claim.update(progress={"rows": 1}),
            lambda: claim.end(State.FINISHED),
        ]
        for write in writes:
            with pytest.raises(LeaseLost):
                write()
    assert (store.batches("r", "q"), store.starts("r"), store.run("r").progress) == ([], [], {})
    assert store.run("r").state is State.RUNNING


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
