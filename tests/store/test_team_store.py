"""The run store of a team: two machines, one PostgreSQL; where it is said, and what must not be said."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from servers.postgres import PostgresServer
from servers.proxy import Proxy
from sqlalchemy import inspect, text
from sqlalchemy.engine import URL
from sqlalchemy.schema import DropSchema

from rekappa.cli.main import main
from rekappa.errors import ConfigError, RunError, StoreError
from rekappa.home import Home
from rekappa.store.address import Address
from rekappa.store.claim import Claim
from rekappa.store.database import Database
from rekappa.store.desk import Desk
from rekappa.store.dialects import dialect_of
from rekappa.store.kept import folder_of, keep_code, kept_files
from rekappa.store.record import Batch, Kind, Run, Standing, Start, State, Wish
from rekappa.store.runs import RunStore

PASSWORD = "s3cret-pässword"
EVERYWHERE = {"REKAPPA_STORE": ""}


def test_two_machines_see_the_same_runs_leases_verdicts_and_code(
    postgres_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two project folders; the second never had the app's folder, and runs the code all the same."""
    here, there = Home(tmp_path / "here" / ".rekappa"), Home(tmp_path / "there" / ".rekappa")
    for home in (here, there):
        home.root.mkdir(parents=True)
        home.store_address.write_text(f"{postgres_store}\n")
    app = tmp_path / "here" / "app"
    app.mkdir()
    (app / "rekappa.yaml").write_text("app: rmi\nsinks: {o: {password: hunter2}}\n")
    (app / "app.py").write_text("LIMIT = 10\n")
    mine, theirs = RunStore.open(here), RunStore.open(there)
    run = mine.create(Run("backfill_1", "rmi", Kind.BACKFILL, str(app), spec={"modes": {"j": "bulk"}}))
    code = keep_code(here, app)
    mine.record_start(Start(run.id, "", 0, code))
    with mine.claim(["archive table t"], "archive 'rmi'") as claim:
        claim.begin(run.id, "spark-here-1.log")
        assert (theirs.run(run.id).state, theirs.run(run.id).pid) == (State.RUNNING, os.getpid())
        with pytest.raises(RunError, match=f"process {os.getpid()} on .* 'archive table t'"):
            theirs.claim(["archive table t"], "archive 'rmi'")
        theirs.update(run.id, wish=Wish.PAUSE)
        assert claim.wish() is Wish.PAUSE
        positions = (Standing("s", "eu", "t", {0: 7}),)
        mine.record_batches([Batch(run.id, "q", 0, positions, None, datetime.now(UTC))], claim)
        claim.end(State.FINISHED)
    theirs.update(run.id, validation={"outcome": "passed"})
    assert mine.run(run.id) == theirs.run(run.id)
    assert mine.run(run.id).validation == {"outcome": "passed"}
    assert theirs.batches(run.id, "q")[0].positions == positions
    (app / "app.py").rename(tmp_path / "app.py")
    (app / "rekappa.yaml").unlink()
    found = folder_of(there, theirs.run(run.id))
    assert found.is_relative_to(there.root)
    assert (found / "app.py").read_text() == "LIMIT = 10\n"
    assert "hunter2" not in (found / "rekappa.yaml").read_text()
    assert code.hash is not None
    assert kept_files(there, code.hash).keys() == {"app.py", "rekappa.yaml"}
    for home in (here, there):
        monkeypatch.setenv("REKAPPA_HOME", str(home.root))
        shown = CliRunner().invoke(main, ["runs", run.id])
        assert shown.exit_code == 0, shown.output
        assert "finished" in shown.stdout
    assert not here.store.exists()
    assert not there.store.exists()


def test_the_environment_comes_first_then_the_file_of_the_project(tmp_path: Path) -> None:
    home = Home(tmp_path / ".rekappa")
    assert Address.of(home, {}).file == home.store
    home.root.mkdir()
    home.store_address.write_text("postgresql://ann@db.example.org:5433/team?schema=a&sslmode=require\n")
    found = Address.of(home, EVERYWHERE)
    assert (str(found), found.schema) == ("postgresql://ann@db.example.org:5433/team?schema=a", "a")
    assert dict(found.url.query) == {"sslmode": "require"}
    told = Address.of(home, {"REKAPPA_STORE": "postgres://db/team"})
    assert (str(told), told.schema) == ("postgresql://db/team", "rekappa")
    assert Address.of(home, {"REKAPPA_STORE": f"sqlite:///{tmp_path}/x.db"}).file == tmp_path / "x.db"


@pytest.mark.parametrize(
    "told",
    [
        "mysql://u:hunter2@h/d",
        "postgresql://u:hunter2@h",
        "postgresql://u:p@hunter2:x/d",
        "hunter2",
        "sqlite://",
        "postgresql://h/d?schema=a&schema=b",
        "postgresql://u:p@ss/hunter2@127.0.0.1:5432/d",
        "postgresql://u:p@hunter2@127.0.0.1/d",
    ],
)
def test_a_wrong_address_is_refused_without_its_password(
    told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REKAPPA_STORE", told)
    monkeypatch.setenv("REKAPPA_DEBUG", "1")
    answer = CliRunner().invoke(main, ["runs"])
    assert answer.exit_code == 2
    assert "Cannot use the run store of REKAPPA_STORE" in answer.output
    assert "hunter2" not in answer.output
    with pytest.raises(ConfigError):
        Address.parse(told)


def test_what_the_server_does_not_know_is_refused(postgres_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKAPPA_STORE", f"{postgres_store}&nosuch=1")
    answer = CliRunner().invoke(main, ["runs"])
    assert answer.exit_code == 2
    assert 'invalid connection option "nosuch"' in " ".join(answer.output.split())


@pytest.mark.parametrize("name", ['we"ird', "it's", "50% off", "A.b:c;", "größe", "select", "x" * 63])
def test_a_schema_of_any_name_works(postgres_url: str, name: str) -> None:
    """Made, found again, and used in every way that names tables: in expressions, and in the SQL of old versions."""
    told = f"{postgres_url}?schema={quote(name)}"
    address = Address.parse(told)
    assert address.schema == name
    try:
        RunStore(address).create(Run("live_1", "rmi", Kind.LIVE, "f"))
        with RunStore(Address.parse(told)).claim(["a"], "b") as claim:
            claim.begin("live_1")
        Desk(Database(address)).tell("ann", "shell", "publish")
        assert [run.id for run in RunStore(address).runs()] == ["live_1"]
        with dialect_of(address).engine.begin() as db:
            dialect_of(address).alone(db)
            assert db.execute(text("SELECT count(*) FROM audit")).scalar_one() == 1, "the search path is this schema"
    finally:
        with dialect_of(address).engine.begin() as db:
            db.execute(DropSchema(name, cascade=True, if_exists=True))
        dialect_of(address).engine.dispose()


@pytest.mark.parametrize("name", ["a[b]", "pg_mine", "x" * 64, "ö" * 32, "a%0Ab"])
def test_a_schema_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="can't be the name of a schema"):
        Address.parse(f"postgresql://h/d?schema={name}")


def test_the_rights_that_the_page_names_are_enough(postgres_store: str) -> None:
    """Tables that one user made, used by another with no more than docs/store.md grants."""
    address = Address.parse(postgres_store)
    name = f"ann_{secrets.token_hex(4)}"
    RunStore(address).create(Run("live_1", "rmi", Kind.LIVE, "f"))
    page = (Path(__file__).parents[2] / "docs" / "store.md").read_text()
    grants = re.findall(r"^GRANT .*;$", page, re.MULTILINE)
    assert len(grants) == 3
    engine = dialect_of(address).engine
    with engine.begin() as db:
        db.execute(text(f"CREATE ROLE {name} LOGIN PASSWORD 'writes'"))
        for one in grants:
            db.execute(
                text(one.replace("SCHEMA rekappa", f'SCHEMA "{address.schema}"').replace("TO ann", f"TO {name}"))
            )
    told = address.url.set(username=name, password="writes").render_as_string(hide_password=False)
    theirs = Address.parse(f"{told}?schema={quote(address.schema or '')}")
    try:
        store = RunStore(theirs)
        store.create(Run("live_2", "rmi", Kind.LIVE, "f"))
        with store.claim(["live rmi"], "run") as claim:
            claim.begin("live_2")
            claim.end(State.STOPPED)
        Desk(Database(theirs)).tell("ann", "shell", "clean")
        store.forget(["live_1"])
        assert [run.id for run in RunStore(address).runs()] == ["live_2"]
    finally:
        dialect_of(theirs).engine.dispose()
        with engine.begin() as db:
            db.execute(text(f"DROP OWNED BY {name}"))
            db.execute(text(f"DROP ROLE {name}"))


def test_a_user_without_the_right_is_told_so(postgres_store: str) -> None:
    address = Address.parse(postgres_store)
    name = f"reader_{secrets.token_hex(4)}"
    engine = dialect_of(address).engine
    with engine.begin() as db:
        db.execute(text(f"CREATE ROLE {name} LOGIN PASSWORD 'reads'"))
    told = address.url.set(username=name, password="reads").render_as_string(hide_password=False)
    try:
        with pytest.raises(ConfigError, match="permission denied for database"):
            RunStore(Address.parse(f"{told}?schema=other_{name}"))
    finally:
        dialect_of(Address.parse(f"{told}?schema=other_{name}")).engine.dispose()
        with engine.begin() as db:
            db.execute(text(f"DROP ROLE {name}"))


@given(password=st.text(min_size=6, alphabet=st.characters(codec="utf-8", exclude_characters="\0*")))
def test_no_password_is_printed(password: str) -> None:
    url = URL.create("postgresql", "ann", password, "db", 5432, "team", {"password": password})
    address = Address.parse(url.render_as_string(hide_password=False))
    assert address.url.password == password
    for said in (str(address), repr(address), f"{address}"):
        assert said.removeprefix("Address(").strip("'").startswith("postgresql://ann:***@db:5432/team")


def test_the_password_reaches_no_output(postgres_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A good one, in a list of runs; a wrong one, and a database that is not there, in errors with every detail."""
    home, secret = Home(tmp_path / ".rekappa"), quote(PASSWORD)
    assert secret in postgres_store
    RunStore(Address.parse(postgres_store)).create(Run("live_1", "rmi", Kind.LIVE, "f"))
    monkeypatch.setenv("REKAPPA_HOME", str(home.root))
    monkeypatch.setenv("REKAPPA_DEBUG", "1")

    def said(store: str, code: int) -> str:
        monkeypatch.setenv("REKAPPA_STORE", store)
        answer = CliRunner().invoke(main, ["runs", "--json"])
        assert answer.exit_code == code, answer.output
        for word in (PASSWORD, secret, "hunter2"):
            assert word not in answer.output
        return answer.output

    assert "live_1" in said(postgres_store, 0)
    refused = said(postgres_store.replace(secret, "hunter2-wrong"), 2)
    assert "Cannot use run store postgresql://rekappa:***@127.0.0.1" in refused
    assert "password authentication failed" in refused
    assert "does not exist" in said(postgres_store.replace("/postgres?", "/nowhere?"), 2)
    assert not home.root.exists(), "nothing was made"


def test_a_command_that_only_looks_makes_nothing_on_the_server(
    postgres_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REKAPPA_STORE", postgres_store)
    address = Address.parse(postgres_store)
    for words in (["runs"], ["stop", "live_1"], ["pause", "b"], ["undo", "b"]):
        answer = CliRunner().invoke(main, words)
        assert answer.exit_code == 2, answer.output
        assert "Cannot find any run: nothing has run yet" in answer.output
    with dialect_of(address).engine.connect() as db:
        assert address.schema not in inspect(db).get_schema_names()
    assert list(tmp_path.iterdir()) == []


def test_a_missing_driver_is_named_with_what_installs_it(tmp_path: Path) -> None:
    script = "import sys; sys.modules['psycopg'] = None\nfrom rekappa.cli.main import main\nmain()"
    told = {"REKAPPA_STORE": "postgresql://db/team", "REKAPPA_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script, "runs"], capture_output=True, text=True, env={**os.environ, **told}
    )
    assert done.returncode == 2
    assert "Cannot open run store postgresql://db/team: the package psycopg is not installed" in done.stderr
    assert "pip install 'rekappa[postgres]'" in done.stderr


def test_the_clock_is_the_databases_own(postgres_store: str) -> None:
    """A server whose clock is hours behind this machine's: a lease ends by that clock, not by ours."""
    schema = Address.parse(postgres_store).schema
    engine = dialect_of(Address.parse(postgres_store)).engine
    RunStore(Address.parse(postgres_store)).create(Run("r", "rmi", Kind.LIVE, "f"))
    with engine.begin() as db:
        behind = "SELECT pg_catalog.clock_timestamp() - interval '5 hours'"
        named = f'"{schema}".clock_timestamp()'
        db.execute(text(f"CREATE FUNCTION {named} RETURNS timestamptz LANGUAGE sql VOLATILE AS $$ {behind} $$"))
    path = quote(f'-csearch_path="{schema}",pg_catalog'.replace(" ", "\\ "))
    store = RunStore(Address.parse(f"{postgres_store}&options={path}"))
    with store.claim(["a"], "work") as claim:
        claim.begin("r")
        lease = store.lease("a")
        assert lease is not None
        assert lease.expires is not None
        assert lease.expires < datetime.now(UTC) - timedelta(hours=4)
        assert store.run("r").state is State.RUNNING
        with pytest.raises(RunError, match="Cannot do it too"):
            store.claim(["a"], "do it too")
        claim.end(State.FINISHED)
    ended = store.run("r").ended
    assert ended is not None
    assert ended < datetime.now(UTC) - timedelta(hours=4)
    dialect_of(Address.parse(f"{postgres_store}&options={path}")).engine.dispose()


def test_connections_that_the_server_closed_are_opened_anew(postgres_store: str) -> None:
    """A server that was started anew, or one in front of it that closes what is idle."""
    store = RunStore(Address.parse(postgres_store))
    store.create(Run("r", "rmi", Kind.LIVE, "f"))
    with store.claim(["a"], "work") as claim:
        claim.begin("r")
        with dialect_of(Address.parse(postgres_store)).engine.connect() as db:
            others = "pid <> pg_backend_pid() AND application_name = 'rekappa'"
            db.execute(text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"))
        claim.update(progress={"rows": 1})
    assert store.run("r").progress == {"rows": 1}


def test_a_server_that_is_away_for_a_while_is_waited_for_but_not_one_that_never_answered(
    postgres_store: str, postgres_server: PostgresServer
) -> None:
    proxy = Proxy(postgres_server.port)
    address = Address.parse(postgres_store.replace(f":{postgres_server.port}/", f":{proxy.port}/"))
    with pytest.raises(StoreError, match=f"Cannot use run store postgresql://rekappa:.*{proxy.port}"):
        RunStore(address)
    proxy.open()
    store = RunStore(address)
    store.create(Run("r", "rmi", Kind.LIVE, "f"))
    with store.claim(["a"], "work") as claim:
        claim.begin("r")
        proxy.shut()
        back = threading.Timer(1, proxy.open)
        back.start()
        claim.update(progress={"rows": 1})
        back.join()
    assert store.run("r").progress == {"rows": 1}
    dialect_of(address).engine.dispose()
    proxy.shut()


INSIDE = """
import sys
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote
from rekappa.errors import RekappaError
from rekappa.home import Home
from rekappa.store import claim as claims, dialects
from rekappa.store.rows import change_run
from rekappa.store.runs import RunStore

claims.LASTS, dialects.SUSPENDED = timedelta(seconds=1), 1
store = RunStore.open(Home(Path("unused")))
try:
    with store.claim(["a"], "work") as claim:
        claim.begin("r")
        with claim.writing() as db:
            change_run(db, "r", {"progress": {"rows": 1}})
            print("inside", flush=True)
            sys.stdin.readline()
except RekappaError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def taken_over(store: RunStore) -> Claim:
    """The lease of another process, as soon as it has expired."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return store.claim(["a"], "take over")
        except RunError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_process_that_is_suspended_inside_a_transaction_holds_nobody_up_and_writes_nothing(
    postgres_store: str,
) -> None:
    store = RunStore(Address.parse(postgres_store))
    store.create(Run("r", "rmi", Kind.LIVE, "f"))
    pipe = subprocess.PIPE
    told = {**os.environ, "REKAPPA_STORE": postgres_store}
    process = subprocess.Popen(
        [sys.executable, "-c", INSIDE], text=True, stdin=pipe, stdout=pipe, stderr=pipe, env=told
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "inside\n"
    process.send_signal(signal.SIGSTOP)
    with taken_over(store) as claim:
        claim.begin("r")
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate("go on\n", timeout=60)
        assert process.returncode == 1
        assert errors.startswith(("StoreError", "LeaseLost")), errors
        assert store.run("r").progress == {}
        claim.update(progress={"rows": 2})
    assert store.run("r").progress == {"rows": 2}
