"""`rekappa console` as a command: it prints the address that lets its owner in, serves, and ends when told to."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPSConnection
from pathlib import Path
from urllib.request import urlopen

import pytest

from console.waiting import wait_until
from rekappa.cli.console import free_port
from rekappa.home import Home
from rekappa.operations.logins import fits
from rekappa.store.desk import Desk
from rekappa.store.host import this_host
from rekappa.store.task import Task, TaskState
from rekappa.tasks.standing import lost, task, tasks

PROGRAM = (sys.executable, "-m", "rekappa.cli.main")
AFTER_SPARK = """
import signal
import sys
from pathlib import Path

from rekappa.cli.demo import open_console


def left_by_spark(*_):
    raise AttributeError("Spark's handler of Ctrl-C, once Spark is stopped")


signal.signal(signal.SIGINT, left_by_spark)
open_console(Path(sys.argv[1]))
"""


@contextmanager
def console(folder: Path, *words: str) -> Iterator[str]:
    environ = {name: value for name, value in os.environ.items() if name != "REKAPPA_HOME"}
    process = subprocess.Popen(
        [*PROGRAM, "console", "--port", str(free_port()), "--json", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environ,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    told = ""
    while not told.rstrip().endswith("}"):
        line = process.stdout.readline()
        assert line, process.stderr.read()
        told += line
    try:
        yield json.loads(told)["address"]
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in errors) == (0, False), errors


def test_its_owner_is_let_in_by_the_address_that_it_prints(tmp_path: Path) -> None:
    from http.cookiejar import CookieJar
    from urllib.request import HTTPCookieProcessor, build_opener

    with console(tmp_path) as address:
        until_up(address)
        page = build_opener(HTTPCookieProcessor(CookieJar())).open(address).read().decode()
        assert "rekappa new shop" in page
        assert "token" not in address.split("?")[0]
    assert [one.what for one in Desk.open(Home(tmp_path / ".rekappa")).deeds()] == ["log in"]


def until_up(address: str) -> None:
    """It listens a moment after it has said where."""

    def up() -> bool:
        try:
            return urlopen(address.split("login")[0] + "health").status == 200  # type: ignore[no-any-return]
        except OSError:
            return False

    wait_until(up, "the console listens")


def test_after_a_reboot_it_starts_anew_what_ran(tmp_path: Path) -> None:
    """A job whose keeper was of another boot of this machine, and one that had ended before."""
    home, host = Home(tmp_path / ".rekappa"), this_host()
    home.made()
    desk, words = Desk.open(home), ("runs", "--json")
    for name, state in (("task_1", TaskState.RUNNING), ("task_2", TaskState.DONE)):
        desk.add_task(Task(name, (*words, f"--app={name}"), "olga", "cli", str(tmp_path), host.name, "another boot",
                           kept=True, state=state, pid=1, process="another birth"))  # fmt: skip
    assert [one.id for one in lost(home)] == ["task_1"]
    with console(tmp_path, "--revive") as address:
        until_up(address)
        (anew,) = [one for one in tasks(home) if one.id not in ("task_1", "task_2")]
        assert anew.words == (*words, "--app=task_1")
        wait_until(lambda: task(home, anew.id).state is TaskState.DONE, "it has run again")
        assert lost(home) == []
    assert [(one.what, one.face) for one in desk.deeds()] == [("revive", "console")]
    with console(tmp_path, "--revive") as address:
        until_up(address)
        assert len(tasks(home)) == 3, "once"


def test_the_demo_s_console_shows_its_story_until_it_is_stopped(tmp_path: Path) -> None:
    """What `rekappa demo --console` does when its tale is told: here over a project as the tale leaves it."""
    from http.cookiejar import CookieJar
    from urllib.request import HTTPCookieProcessor, build_opener

    from console.sample import DONE, fill

    fill(tmp_path / "demo")
    process = subprocess.Popen(
        [sys.executable, "-c", AFTER_SPARK, str(tmp_path / "demo")], stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert process.stderr is not None
    try:
        address = process.stderr.readline().removeprefix("open ").strip()
        story = process.stderr.readline()
        assert "/apps/plays/backfill" in story
        assert DONE in story, "the newest backfill"
        until_up(address)
        page = build_opener(HTTPCookieProcessor(CookieJar())).open(f"{address}&next=/runs/{DONE}/publish").read()
        assert b"Effect on production" in page
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
    assert (process.returncode, "Traceback" in errors) == (0, False), errors


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on this machine to make a certificate with")
def test_beyond_this_machine_it_wants_a_login_and_tls(tmp_path: Path) -> None:
    def refused(*words: str) -> str:
        done = subprocess.run(
            [*PROGRAM, "console", "--host", "0.0.0.0", *words], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 2
        return done.stderr

    assert "no login is set up" in refused()
    added = subprocess.run(
        [*PROGRAM, "users", "add", "anna", "--role", "operator"],
        cwd=tmp_path,
        input="a long password\n",
        capture_output=True,
        text=True,
    )
    assert added.returncode == 0, added.stderr
    (person,) = Desk.open(Home(tmp_path / ".rekappa")).people()
    assert fits("a long password", person.secret)
    assert not fits("another password", person.secret)
    assert "a long password" not in person.secret + added.stdout + added.stderr
    assert "without TLS" in refused()
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    with console(tmp_path, f"--certificate={certificate}", f"--key={key}") as address:
        assert address.startswith("https://")
        assert "token" not in address, "with a login there is no other way in"
        trusting = ssl.create_default_context(cafile=str(certificate))
        trusting.check_hostname = False
        port = int(address.split(":")[2].split("/")[0])

        def answer() -> int | None:
            connection = HTTPSConnection("127.0.0.1", port, context=trusting)
            try:
                connection.request("GET", "/login")
                found = connection.getresponse()
                assert "max-age" in (found.getheader("Strict-Transport-Security") or "")
                return found.status
            except ConnectionRefusedError:
                return None
            finally:
                connection.close()

        wait_until(lambda: answer() == 200, "it answers over TLS")
