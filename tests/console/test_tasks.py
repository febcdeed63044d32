"""Commands in processes of their own: looked after, started again, found when lost, ended, dismissed."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from console.site_of import TOKEN, Site, form_key
from console.waiting import ended, wait_until
from rekappa.cli.main import main
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.stack.process import birth_of
from rekappa.store.desk import Desk
from rekappa.store.host import this_host
from rekappa.store.task import Task, TaskState
from rekappa.tasks.ending import dismiss_task, stop_task
from rekappa.tasks.files import answer, cause, log_file
from rekappa.tasks.keeper import Keeper
from rekappa.tasks.pauses import Patience
from rekappa.tasks.standing import lost, orphan, task, tasks, to_be_seen
from rekappa.tasks.start import revive, start_task


def test_pauses_grow_and_end() -> None:
    patience = Patience(timedelta(seconds=1), timedelta(seconds=10), 6, timedelta(minutes=10))
    short, restarts, waits = timedelta(seconds=1), 0, []
    while (again := patience.pause(restarts, short)) is not None:
        restarts = again[0]
        waits.append(again[1].total_seconds())
    assert waits == [1, 2, 4, 8, 10, 10]
    assert patience.pause(6, timedelta(minutes=11)) == (1, timedelta(seconds=1)), "it had recovered in between"


QUICK = Patience(timedelta(milliseconds=1), timedelta(milliseconds=1), 3)


def a_task(home: Home, *words: str, kept: bool = True) -> Task:
    host = this_host()
    made = Task("task_1", words, "olga", "cli", str(home.root), host.name, host.machine, kept=kept)
    home.made().logs.mkdir(exist_ok=True)
    return Desk.open(home).add_task(made)


def keep(home: Home, code: str, *, kept: bool = True) -> Task:
    """Looked after in this process; the command is a few lines of Python."""
    made = a_task(home, code, kept=kept)
    Keeper(home, made, QUICK, (sys.executable, "-c")).keep()
    return Desk.open(home).task(made.id)


def test_a_kept_command_that_fails_is_started_again_and_then_marked_failed_with_its_cause(tmp_path: Path) -> None:
    home = Home(tmp_path / ".rekappa")
    failing = "import sys; open('starts', 'a').write('x'); sys.exit('error: no broker at 10.0.0.1\\nhint: Start it.')"
    found = keep(home, failing)
    assert (home.root / "starts").read_text() == "xxxx", "once, and three times more"
    assert (found.state, found.restarts, found.exit_code) == (TaskState.FAILED, 3, 1)
    assert found.error == "no broker at 10.0.0.1 Start it. It was started again 3 times in a row."
    assert found.ended is not None


def test_a_command_that_recovers_is_done_and_one_that_is_refused_is_not_repeated(tmp_path: Path) -> None:
    second = (
        "import os, sys; there = os.path.exists('been'); open('been', 'w'); print('{\"a\": 1}'); sys.exit(not there)"
    )
    home = Home(tmp_path / "a" / ".rekappa")
    found = keep(home, second)
    assert (found.state, found.restarts, answer(home, found.id)) == (TaskState.DONE, 1, {"a": 1})
    refused = keep(Home(tmp_path / "b" / ".rekappa"), "raise SystemExit(2)")
    assert (refused.state, refused.restarts) == (TaskState.FAILED, 0)
    once = keep(Home(tmp_path / "c" / ".rekappa"), "raise SystemExit(1)", kept=False)
    assert (once.state, once.restarts) == (TaskState.FAILED, 0)
    killed = keep(Home(tmp_path / "d" / ".rekappa"), "import os; os.kill(os.getpid(), 9)", kept=False)
    assert killed.error == "its process was ended by signal 9"


def test_the_cause_is_the_last_error_and_secrets_are_hidden(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("error: first\nhint: old\nnoise\nerror: Cannot reach postgresql://me:pw@db/x\n")
    assert cause(log, 1) == "Cannot reach postgresql://me:********@db/x"
    log.write_text("Traceback\nValueError: x\n")
    assert cause(log, 1) == "it ended with code 1: ValueError: x"


def test_a_task_outlives_its_asker_is_stopped_and_lost_ones_are_revived(tmp_path: Path) -> None:
    """Detached for real: a console whose port another has taken fails, and waits to be started again."""
    home = Home(tmp_path / ".rekappa")
    words = ("runs", "--json")
    made = start_task(home, words, who="olga", face="cli", what="look", kept=True, folder=tmp_path)
    assert ended(home, made.id).state is TaskState.DONE
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        _lost_and_revived(home, tmp_path, ("console", f"--port={taken.getsockname()[1]}", "--json"))
    with pytest.raises(RunError, match=r"everybody on this machine could read its secret"):
        start_task(home, ("run", "--set=password=pw1234"), who="o", face="cli", what="run", folder=tmp_path)
    assert "pw1234" not in "".join(one.read_text() for one in home.logs.iterdir())


def test_the_command_of_a_keeper_that_was_killed_is_found_and_ended(site: Site) -> None:
    """Its process is known by number and birth: the face that stops it can't hit another."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ("console", f"--port={port}", "--json")
    made = start_task(site.home, words, who="olga", face="cli", what="serve", kept=True, folder=site.folder)
    wait_until(lambda: site.desk.task(made.id).command_pid is not None, "its command runs")
    wait_until(lambda: bool(answer(site.home, made.id)), "it serves")
    assert made.pid is not None
    os.kill(made.pid, signal.SIGKILL)
    wait_until(lambda: task(site.home, made.id).state is TaskState.LOST, "its keeper is gone")
    left = orphan(task(site.home, made.id))
    assert left is not None
    with pytest.raises(RunError, match="olga has started it, it is lost"):
        start_task(site.home, words, who="ben", face="cli", what="serve", kept=True, folder=site.folder)
    with pytest.raises(RunError, match=f"still runs as process {left.pid}"):
        dismiss_task(site.home, made.id)
    other = replace(task(site.home, made.id), command_process="another birth")
    assert orphan(other) is None, "a later process with its number is somebody else"
    assert orphan(replace(other, machine="elsewhere")) is None

    olga = site.logged_in("olga")
    shown = olga.get(f"/tasks/{made.id}").text
    assert f"still runs as process {left.pid}" in shown
    asked = {"form_key": form_key(olga)}
    assert f"process {left.pid}" in olga.post(f"/tasks/{made.id}/stop", data=asked).text
    assert olga.post(f"/tasks/{made.id}/stop", data={**asked, "sure": "yes"}).status_code == 303
    stopping = tasks(site.home)[0]
    assert ended(site.home, stopping.id).state is TaskState.DONE, log_file(site.home, stopping.id).read_text()
    assert not left.alive()
    assert task(site.home, made.id).state is TaskState.STOPPED
    assert to_be_seen(tasks(site.home)) == []
    late = olga.post(f"/tasks/{made.id}/stop", data=asked)
    assert (late.status_code, "it is stopped" in late.text) == (409, True), "known before it is asked"


def test_what_was_lost_or_failed_is_told_until_it_is_dismissed_or_started_again(site: Site) -> None:
    host = this_host()
    gone = Task("t1", ("run", "a"), "olga", "cli", "/", host.name, host.machine, "shop", kept=True, pid=2**22 + 1,
                process="none", state=TaskState.RUNNING)  # fmt: skip
    site.desk.add_task(gone)
    assert [(one.id, one.state) for one in to_be_seen(tasks(site.home))] == [("t1", TaskState.LOST)]
    site.desk.add_task(replace(gone, id="t2", state=TaskState.DONE, pid=None, process=None))
    assert to_be_seen(tasks(site.home)) == [], "the same was started again"
    site.desk.add_task(replace(gone, id="t3", words=("run", "b"), state=TaskState.FAILED, error="no broker"))
    metrics = {"authorization": f"Bearer {TOKEN}"}
    assert 'rekappa_jobs{state="failed"} 1.0' in site.browser().get("/metrics", headers=metrics).text
    olga = site.logged_in("olga")
    assert "no alert tells of it" in olga.post("/tasks/t3/dismiss", data={"form_key": form_key(olga)}).text
    done = CliRunner().invoke(main, ["jobs", "t3", "--dismiss", "--json"], env={"REKAPPA_HOME": str(site.home.root)})
    assert (json.loads(done.stdout)["state"], json.loads(done.stdout)["error"]) == ("stopped", "no broker")
    assert 'state="failed"' not in site.browser().get("/metrics", headers=metrics).text.split("rekappa_jobs{")[-1]
    again = CliRunner().invoke(main, ["jobs", "t3", "--dismiss"], env={"REKAPPA_HOME": str(site.home.root)})
    assert (again.exit_code, "it is stopped" in again.stderr) == (2, True)


def _lost_and_revived(home: Home, tmp_path: Path, sleeper: tuple[str, ...]) -> None:
    going = start_task(home, sleeper, who="olga", face="cli", what="serve", kept=True, folder=tmp_path)
    wait_until(lambda: task(home, going.id).state is TaskState.WAITING, "it failed, and waits")
    assert going.pid is not None
    assert birth_of(going.pid) == going.process
    with pytest.raises(RunError, match="olga has started it"):
        start_task(home, sleeper, who="ben", face="cli", what="serve", kept=True, folder=tmp_path)
    os.kill(going.pid, signal.SIGKILL)
    wait_until(lambda: task(home, going.id).state is TaskState.LOST, "its keeper is gone")
    assert [one.id for one in lost(home)] == [going.id]
    (anew,) = revive(home, "ben", "cli")
    assert lost(home) == []
    wait_until(lambda: task(home, anew.id).state in (TaskState.RUNNING, TaskState.WAITING), "it is started")
    stop_task(home, anew.id)
    assert ended(home, anew.id).state is TaskState.STOPPED
    with pytest.raises(RunError, match="it is stopped"):
        stop_task(home, anew.id)
    assert [one.what for one in Desk.open(home).deeds()] == ["revive", "serve", "look"]
    assert log_file(home, anew.id).exists()
