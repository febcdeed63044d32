"""One writer: leases among real processes, whatever order they come in and however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, update

from rekappa.errors import LeaseLost, RunError
from rekappa.runs.stopping import stop_run
from rekappa.store import claim as claims
from rekappa.store.address import Address
from rekappa.store.database import Database
from rekappa.store.leases import Lease, find, give_back, renew, take
from rekappa.store.record import Kind, Run, State
from rekappa.store.runs import RunStore
from rekappa.store.tables import LEASES

HOLDER = """
import os, signal, sys, time
from datetime import timedelta
from pathlib import Path
from rekappa.errors import LeaseLost, RunError
from rekappa.home import Home
from rekappa.store import claim as claims
from rekappa.store.runs import RunStore

log, lasts, rounds = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
claims.LASTS = timedelta(seconds=lasts)

def note(line):
    with log.open("a") as file:
        file.write(line + "\\n")

done = 0
while done < rounds:
    store = RunStore.open(Home(log.parent))
    try:
        with store.claim(["b", "a"] if done % 2 else ["a", "b"], "write") as claim:
            note("in")
            done += 1
            if rounds == 1:
                claim.begin("r")
                print("holding", flush=True)
                if sys.stdin.readline() == "suspend\\n":
                    # Between two transactions: SQLite's lock would be suspended with it.
                    with claim._lock:
                        os.kill(os.getpid(), signal.SIGSTOP)
                    sys.stdin.readline()
                claim.check()
            else:
                time.sleep(0.003)
            note("out")
    except LeaseLost as lost:
        note("lost")
        sys.exit(str(lost))
    except RunError:
        time.sleep(0.003)
"""


PROCESSES, ROUNDS = 3, 8


@dataclass(frozen=True)
class Place:
    """A store, and a folder beside it for what processes note."""

    url: str
    folder: Path

    def open(self) -> RunStore:
        return RunStore(Address.parse(self.url))

    def noted(self) -> list[str]:
        return (self.folder / "log").read_text().split()


@pytest.fixture
def place(store_url: str, tmp_path: Path) -> Place:
    return Place(store_url, tmp_path)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def start(place: Place, lasts: float, rounds: int = 1) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", HOLDER, str(place.folder / "log"), str(lasts), str(rounds)]
    told = {**os.environ, "REKAPPA_STORE": place.url}
    pipe = subprocess.PIPE
    return subprocess.Popen(words, text=True, stdin=pipe, stdout=pipe, stderr=pipe, env=told)


@contextmanager
def holder(place: Place, lasts: float = 60) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a, b and run r; a line on its stdin lets it check and end."""
    store = place.open()
    if not store.runs():
        store.create(Run("r", "rmi", Kind.LIVE, "f"))
    process = start(place, lasts)
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def suspend(process: subprocess.Popen[str]) -> None:
    """Let it stop at once, until it is told to continue."""
    assert process.stdin is not None
    process.stdin.write("suspend\n")
    process.stdin.flush()
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)


def test_of_many_processes_that_begin_at_once_one_at_a_time_gets_in(place: Place) -> None:
    processes = [start(place, 60, rounds=ROUNDS) for _ in range(PROCESSES)]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    noted = place.noted()
    assert noted == ["in", "out"] * ROUNDS * PROCESSES, "two were inside at once"
    lease = place.open().lease("a")
    assert lease is not None
    assert lease.token == ROUNDS * PROCESSES, "every holder had a token of its own"


def test_it_is_refused_while_held_and_free_at_once_when_its_process_is_dead(place: Place) -> None:
    with holder(place) as process:
        store = place.open()
        assert (store.run("r").state, store.run("r").pid) == (State.RUNNING, process.pid)
        with pytest.raises(RunError, match=f"Cannot run it: run r is at work in process {process.pid} on .* 'a'"):
            store.claim(["c", "a"], "run it")
        with store.claim(["c"], "nothing of a refused claim is kept"):
            pass
        with store.claim([], "continue") as claim, pytest.raises(RunError, match=f"process {process.pid}"):
            claim.begin("r")
        process.kill()
        process.wait()
        assert store.run("r").state is State.DIED
        with store.claim(["c", "a"], "run it") as claim:
            claim.begin("r")
            assert store.run("r").pid == os.getpid()
            claim.end(State.FINISHED)
        assert store.run("r").state is State.FINISHED


def test_a_process_that_is_suspended_beyond_its_lease_writes_nothing_more(place: Place) -> None:
    with holder(place, lasts=0.6) as process:
        store = place.open()
        suspend(process)
        wait_until(lambda: store.run("r").state is State.DIED)
        with store.claim(["a"], "take over") as claim:
            claim.begin("r")
            process.send_signal(signal.SIGCONT)
            _, errors = process.communicate("go on\n", timeout=60)
            assert process.returncode == 1
            assert "lost its lease" in errors
            assert f"run r is at work in process {os.getpid()}" in errors
            assert store.run("r").state is State.RUNNING, "the one that lost it left the record alone"
    assert place.noted() == ["in", "lost"]


def test_a_process_that_is_suspended_but_not_replaced_goes_on(place: Place) -> None:
    with holder(place, lasts=0.6) as process:
        store = place.open()
        suspend(process)
        wait_until(lambda: store.run("r").state is State.DIED)
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: store.run("r").state is State.RUNNING)
        process.communicate("go on\n", timeout=60)
        assert process.returncode == 0


def test_the_lease_is_renewed_while_the_main_thread_is_busy(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "LASTS", timedelta(seconds=1))
    store = place.open()
    with store.claim(["a"], "work"):
        first = store.lease("a")
        assert first is not None
        assert first.expires is not None
        while datetime.now(UTC) <= first.expires:
            pass
        now = store.lease("a")
        assert now is not None
        assert now.token == first.token
        assert now.held(datetime.now(UTC))
        with pytest.raises(RunError, match="Cannot do it too"):
            store.claim(["a"], "do it too")


def on_another_machine(place: Place, **columns: object) -> None:
    with Database(Address.parse(place.url)).changing() as db:
        db.execute(update(LEASES).values(machine="other", host="elsewhere", **columns))


def test_the_number_of_a_process_on_another_machine_says_nothing(place: Place) -> None:
    """Neither is it dead because no process here has the number, nor alive because one has it."""
    store = place.open()
    store.create(Run("r", "rmi", Kind.LIVE, "f", State.RUNNING))
    with store.claim(["a"], "work") as claim:
        claim.begin("r")
        no_such_process = 2**30
        on_another_machine(place, pid=no_such_process)
        assert (store.run("r").state, store.run("r").host) == (State.RUNNING, "elsewhere")
        with pytest.raises(RunError, match="on elsewhere"):
            store.claim(["a"], "do it too")
        with pytest.raises(RunError, match=f"its process {no_such_process} is on elsewhere"):
            stop_run(store, "r")
        on_another_machine(place, pid=os.getpid(), expires=datetime.now(UTC))
        assert store.run("r").state is State.DIED
        with store.claim(["a"], "take over"), pytest.raises(LeaseLost):
            claim.check()


NAMES = ("a", "b", "c")


class Refused(Exception):
    """Undoes the transaction, as a claim does that is refused or has lost its lease."""


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["take", "renew", "give back", "expire"]),
            st.integers(0, 2),
            st.sets(st.sampled_from(NAMES), min_size=1),
        ),
        max_size=25,
    )
)
def test_nobody_holds_what_another_holds_and_tokens_only_grow(
    steps: list[tuple[str, int, set[str]]], address: Address
) -> None:
    """Any order of events among three holders, against a model: who holds each name is at most one of them."""
    database = Database(address)
    with database.changing() as db:
        db.execute(delete(LEASES))
    held: list[dict[str, int]] = [{}, {}, {}]
    owner: dict[str, int] = {}
    highest = dict.fromkeys(NAMES, 0)
    expired: set[str] = set()
    lasts = timedelta(hours=1)
    for what, who, names in steps:
        with suppress(Refused), database.changing() as db:
            if what == "take" and not held[who]:
                answer = take(db, sorted(names), lasts)
                free = all(name not in owner or name in expired for name in names)
                assert isinstance(answer, dict) == free
                if not isinstance(answer, dict):
                    raise Refused
                for name, token in answer.items():
                    assert token > highest[name]
                    highest[name], owner[name] = token, who
                    expired.discard(name)
                held[who] = answer
            elif what == "renew":
                mine = all(owner.get(name) == who for name in held[who])
                assert (renew(db, held[who], lasts) is None) == mine
                expired -= {name for name in held[who] if mine}
                if not mine:
                    raise Refused
            elif what == "give back":
                give_back(db, held[who])
                for name in [name for name in held[who] if owner.get(name) == who]:
                    del owner[name]
                    expired.discard(name)
                held[who] = {}
            elif what == "expire":
                for name in names & owner.keys():
                    long_ago = datetime(2000, 1, 1, tzinfo=UTC)
                    db.execute(update(LEASES).where(LEASES.c.name == name).values(expires=long_ago))
                    expired.add(name)
        with database.reading() as db:
            for name in NAMES:
                lease = find(db, name)
                assert isinstance(lease, Lease) == (highest[name] > 0)
                if lease is not None:
                    assert lease.token == highest[name]
                    assert lease.held(datetime.now(UTC)) == (name in owner and name not in expired)
