"""Tasks, logins, sessions, overrides, the audit trail and samples, on SQLite and on PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import insert, inspect, text, update

from rekappa.errors import RunError
from rekappa.store.address import Address
from rekappa.store.database import Database
from rekappa.store.desk import Desk
from rekappa.store.dialects import dialect_of
from rekappa.store.leases import run_lease
from rekappa.store.people import UserRole
from rekappa.store.record import Kind, Run, State
from rekappa.store.runs import RunStore
from rekappa.store.tables import AUDIT, SESSIONS
from rekappa.store.task import Task, TaskState, new_task_id

_NEW = ("tasks", "audit", "users", "sessions", "overrides", "samples")


@pytest.fixture
def database(address: Address) -> Database:
    return Database(address)


@pytest.fixture
def desk(database: Database) -> Desk:
    return Desk(database)


def a_task(**fields: object) -> Task:
    given = {"id": new_task_id(), "words": ("run", "rmi"), "who": "anna", "face": "cli", "folder": "/", "host": "h"}
    return Task(**{**given, "machine": "h/1", **fields})  # type: ignore[arg-type]


def test_a_task_is_kept_and_changed(desk: Desk) -> None:
    made = desk.add_task(a_task(app="rmi", kept=True))
    assert desk.task(made.id) == made
    changed = desk.change_task(made.id, state=TaskState.FAILED, error="postgresql://me:pw@db/x", now=("ended",))
    assert changed.error == "postgresql://me:********@db/x"
    assert changed.ended is not None
    assert changed.ended >= made.created
    with pytest.raises(RunError, match="Cannot find task 'nope'"):
        desk.task("nope")


def test_of_many_that_start_a_command_at_once_one_does(desk: Desk) -> None:
    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda at: desk.add_task(a_task(id=f"t{at}"), unless=lambda _: True).id, range(8)))
    assert len(set(told)) == 1
    assert [one.id for one in desk.tasks()] == [told[0]]
    assert desk.add_task(a_task(id="of another"), unless=lambda _: False).id == "of another"


def test_what_ended_long_ago_is_forgotten(desk: Desk) -> None:
    for number, state in enumerate((TaskState.DONE, TaskState.RUNNING)):
        desk.add_task(a_task(id=f"t{number}", state=state))
    desk.change_task("t0", now=("ended",))
    assert desk.drop_tasks(timedelta(days=1), "h") == []
    assert desk.drop_tasks(timedelta(days=-1), "another host") == []
    assert desk.drop_tasks(timedelta(days=-1), "h") == ["t0"]
    assert [one.id for one in desk.tasks()] == ["t1"]


def test_tasks_that_are_going_are_listed_however_old(desk: Desk) -> None:
    old = desk.add_task(a_task(id="a", state=TaskState.RUNNING))
    for number in range(3):
        desk.add_task(a_task(id=f"b{number}", state=TaskState.DONE, app="shop", run="r"))
    assert [one.id for one in desk.tasks(limit=2)] == ["b2", "b1", old.id]
    assert [one.id for one in desk.tasks(app="shop", limit=1)] == ["b2"]
    assert [one.id for one in desk.tasks(run="r")] == ["b2", "b1", "b0"]


def test_a_session_ends_by_time_by_logout_and_with_its_login(desk: Desk, database: Database) -> None:
    desk.put_person("anna", UserRole.OPERATOR, "hash")
    for digest in ("one", "two", "three"):
        desk.begin_session(digest, "anna", UserRole.OPERATOR, "key", timedelta(hours=1))
    found = desk.session("one")
    assert found is not None
    assert (found.name, found.may_change, found.form_key) == ("anna", True, "key")
    desk.end_session("one")
    assert desk.session("one") is None
    with database.changing() as db:
        past = update(SESSIONS).where(SESSIONS.c.digest == "two")
        db.execute(past.values(expires=found.expires - timedelta(hours=2)))
    assert desk.session("two") is None
    desk.put_person("anna", UserRole.VIEWER, "another hash")
    assert desk.session("three") is None
    assert [(one.name, one.role) for one in desk.people()] == [("anna", UserRole.VIEWER)]
    desk.drop_person("anna")
    assert desk.people() == []
    with pytest.raises(RunError, match="Cannot find user 'anna'"):
        desk.drop_person("anna")


def test_overrides_and_the_audit_trail(desk: Desk) -> None:
    desk.override("rmi", "sources.plays.selected", "backfill", "anna")
    desk.override("rmi", "sources.plays.selected", "live", "ben")
    assert [(one.text, one.who) for one in desk.overrides("rmi")] == [("sources.plays.selected=live", "ben")]
    desk.override("rmi", "sources.plays.selected", None, "ben")
    assert desk.overrides("rmi") == []
    desk.tell("anna", "console", "publish", "rmi", "backfill_1", sinks=["plays"])
    desk.tell("ben", "cli", "start", "shop")
    assert [(one.who, one.what, one.face) for one in desk.deeds()] == [
        ("ben", "start", "cli"), ("anna", "publish", "console"),
    ]  # fmt: skip
    assert desk.deeds(run="backfill_1")[0].details == {"sinks": ["plays"]}
    assert desk.deeds(app="nope") == []


def test_the_audit_trail_remembers_two_years(desk: Desk, database: Database) -> None:
    now = datetime.now(UTC)
    with database.changing() as db:
        row = {"who": "ann", "face": "shell", "what": "publish", "details": {}}
        for days in (731, 729):
            db.execute(insert(AUDIT).values(at=now - timedelta(days=days), **row))
    assert len(desk.deeds()) == 2
    desk.tell("bob", "shell", "undo")
    assert [one.who for one in desk.deeds()] == ["bob", "ann"]
    assert (now - desk.deeds()[-1].at).days == 729


def test_a_run_s_progress_is_sampled_and_goes_with_it(address: Address) -> None:
    store = RunStore(address)
    store.create(Run("live_1", "rmi", Kind.LIVE, "f"))
    with store.claim([run_lease("live_1")], "run") as claim:
        claim.begin("live_1")
        for rows in range(5):
            claim.update(progress={"rows": rows})
        claim.end(State.STOPPED)
    assert [one.progress for one in store.samples("live_1")] == [{"rows": 0}]
    store.drop_batches("live_1")
    assert store.samples("live_1") == []


def test_pages_of_runs(address: Address) -> None:
    store = RunStore(address)
    for number in range(5):
        kind = Kind.LIVE if number % 2 else Kind.BACKFILL
        store.create(Run(f"r{number}", "rmi", kind, "f", State.FAILED if number == 2 else State.FINISHED))
    first = store.page(2)
    assert [run.id for run in first] == ["r4", "r3"]
    assert [run.id for run in store.page(9, before=first[-1].created)] == ["r2", "r1", "r0"]
    assert [run.id for run in store.page(9, kind=Kind.LIVE)] == ["r3", "r1"]
    assert [run.id for run in store.page(9, state=State.FAILED)] == ["r2"]
    assert store.page(9, app="shop") == []
    assert store.counts() == {
        ("rmi", Kind.BACKFILL, State.FINISHED): 2,
        ("rmi", Kind.BACKFILL, State.FAILED): 1,
        ("rmi", Kind.LIVE, State.FINISHED): 2,
    }


def test_a_store_without_these_tables_gets_them_in_its_own_schema(address: Address) -> None:
    RunStore(address).create(Run("live_1", "rmi", Kind.LIVE, "f"))
    database, dialect = Database(address), dialect_of(address)
    with database.changing() as db:
        prefix = f'"{address.schema}".' if address.schema else ""
        for name in _NEW:
            db.execute(text(f"DROP TABLE {prefix}{name}"))
        db.execute(text(f"DROP INDEX {prefix}runs_by_time"))
        dialect.set_version(db, 5)
    desk = Desk(Database(address))
    desk.tell("anna", "cli", "start")
    assert desk.add_task(a_task(kept=True)).kept is True
    assert RunStore(address).run("live_1").app == "rmi"
    with database.reading() as db:
        assert set(_NEW) <= set(inspect(db).get_table_names(schema=address.schema))
