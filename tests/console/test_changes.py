"""Every change asks first, is written down, and is a command in a process of its own."""

from __future__ import annotations

import html
import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from console.site_of import TOKEN, Site, a_backfill, form_key
from console.test_pages import a_verdict
from rekappa.cli.main import main
from rekappa.errors import PlanError, RunError
from rekappa.home import Home
from rekappa.operations.core import Core
from rekappa.operations.points import RestartFrom, drop_change, rewind_change, savepoint_change
from rekappa.operations.window import WindowForm
from rekappa.stack.process import birth_of
from rekappa.store.desk import Desk
from rekappa.store.host import this_host
from rekappa.store.leases import run_lease
from rekappa.store.record import Kind, Run, State
from rekappa.store.task import Task, TaskState
from rekappa.tasks.ending import dismiss_task, stop_task
from rekappa.tasks.files import answer, answer_file, cause, log_file
from rekappa.tasks.keeper import Keeper
from rekappa.tasks.pauses import Patience
from rekappa.tasks.standing import lost, orphan, task, tasks, to_be_seen
from rekappa.tasks.start import revive, start_task

PATIENCE = 300


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"gave up waiting until {what}"
        time.sleep(0.05)


def ended(home: Home, task_id: str) -> Task:
    wait_until(lambda: not task(home, task_id).state.going, "the task has ended")
    return task(home, task_id)


def test_a_change_asks_first_and_is_then_a_command(site: Site) -> None:
    """The whole way: the browser's form, the process, what it answered, the audit trail."""
    site.store.create(Run("backfill_1", "shop", Kind.BACKFILL, "f", State.STOPPED))
    olga = site.logged_in("olga")
    key = form_key(olga)
    first = olga.post("/runs/backfill_1/cancel", data={"form_key": key})
    assert first.status_code == 200
    assert "rekappa cancel backfill_1 --json" in first.text
    assert "stays in staging" in first.text
    assert site.desk.tasks() == []
    yes = olga.post("/runs/backfill_1/cancel", data={"form_key": key, "sure": "yes"})
    assert yes.headers["location"] == "/runs/backfill_1"
    (made,) = tasks(site.home)
    done = ended(site.home, made.id)
    assert (done.state, done.exit_code, done.who, done.face) == (TaskState.DONE, 0, "olga", "console")
    assert answer(site.home, made.id) == {"run": "backfill_1", "state": "cancelled", "asked": "cancel"}
    assert site.store.run("backfill_1").state is State.CANCELLED
    deed = site.desk.deeds(run="backfill_1")
    assert [(one.who, one.face, one.what) for one in deed] == [("olga", "console", "cancel")], "told once"
    assert "cancelled" in olga.get(f"/tasks/{made.id}").text
    again = olga.post("/runs/backfill_1/cancel", data={"form_key": key, "sure": "yes"})
    assert (again.status_code, "it is cancelled" in again.text) == (409, True)


def test_a_refused_command_is_told_with_its_cause(site: Site) -> None:
    run = a_backfill(site)
    olga = site.logged_in("olga")
    asked = {"form_key": form_key(olga), "sure": "yes", "expect totals": "nonsense=1"}
    assert olga.post(f"/runs/{run.id}/validate", data=asked).status_code == 303
    (made,) = tasks(site.home)
    assert made.words == ("validate", run.id, "--expect=nonsense=1", "--json")
    failed = ended(site.home, made.id)
    assert failed.state is TaskState.FAILED
    assert failed.error is not None
    assert "nonsense" in failed.error
    assert "nonsense" in olga.get(f"/runs/{run.id}/validation").text


def test_publish_is_refused_until_its_effect_was_shown(site: Site) -> None:
    run = a_backfill(site)
    site.store.update(run.id, validation=a_verdict(run.id).as_json())
    olga = site.logged_in("olga")
    key = form_key(olga)
    assert "want them in production" in olga.get(f"/runs/{run.id}/publish").text
    blind = olga.post(f"/runs/{run.id}/publish", data={"form_key": key, "sure": "yes"})
    assert (blind.status_code, "effect was not shown" in blind.text) == (409, True)
    host = this_host()
    words = ("publish", run.id, "--dry-run", "--accept-changes", "--json")
    dry = Task("task_1", words, "olga", "console", "/", host.name, host.machine, "shop", run.id, state=TaskState.DONE)
    site.desk.add_task(dry)
    sink = {"sink": "totals", "target": "t", "state": "never published", "added": 12345, "changed": 0, "removed": 0,
            "unchanged": 1, "files_dropped": None, "files_rewritten": 1}  # fmt: skip
    answer_file(site.home, "task_1").write_text(json.dumps({"sinks": [sink]}))
    page = olga.get(f"/runs/{run.id}/publish").text
    assert "12,345" in page
    asked = {"form_key": key, "effect": "task_1", "accept": "yes"}
    sure = olga.post(f"/runs/{run.id}/publish", data=asked)
    assert f"rekappa publish {run.id} --yes --accept-changes --json" in sure.text
    site.store.update(run.id, publication={"state": "undone", "at": "2999-01-01T00:00:00+00:00"})
    late = olga.post(f"/runs/{run.id}/publish", data={**asked, "sure": "yes"})
    assert (late.status_code, "something has changed since" in late.text) == (409, True)
    assert [one.id for one in tasks(site.home)] == ["task_1"]


def test_what_is_known_to_be_refused_is_refused_before_it_is_asked(site: Site) -> None:
    run, store = a_backfill(site), site.store
    store.create(Run("live_1", "shop", Kind.LIVE, "f"))
    host = this_host()
    over = Task("t1", ("run", "shop"), "olga", "cli", "/", host.name, host.machine, state=TaskState.FAILED)
    site.desk.add_task(over)
    olga = site.logged_in("olga")
    secret = {"start": "2026-11-01", "end": "2026-11-02", "settings": "spark.hadoop.fs.s3a.secret.key=hunter27"}
    with store.claim([run_lease("live_1")], "run") as claim:
        claim.begin("live_1")
        for path, fields, told in (
            (f"/runs/{run.id}/undo", {}, "it was not published"),
            ("/tasks/t1/stop", {}, "it is failed"),
            ("/apps/shop/bootstrap", {"since": "x"}, "neither a length of time nor a time"),
            ("/apps/shop/bootstrap", {}, "neither a length of time nor a time"),
            ("/apps/shop/savepoint", {"name": "../../x"}, "Cannot name a savepoint"),
            ("/apps/shop/drop-savepoint", {"name": "../../x"}, "Cannot name a savepoint"),
            ("/apps/shop/rewind", {"savepoint": "../../x"}, "Cannot name a savepoint"),
            ("/apps/shop/rewind", {"to": "soon"}, "Cannot rewind to"),
            ("/apps/shop/rewind", {"to": "3"}, "run live_1 is going"),
            ("/apps/shop/backfill", secret, "could read its secret"),
            ("/apps/shop/plan", secret, "could read its secret"),
            ("/apps/shop/override", {"key": "sinks.totals.password", "value": "hunter27"}, "looks like a secret"),
            ("/apps/shop/override", {"key": "sources.clicks.selected", "value": "nope"}, "nope"),
        ):
            answered = olga.post(path, data={"form_key": form_key(olga), **fields})
            assert (answered.status_code, told in answered.text) == (409, True), (path, answered.text[-600:])
            assert "Yes, " not in answered.text
            assert "hunter27" not in answered.text
    assert [one.id for one in tasks(site.home)] == ["t1"]


def test_a_no_to_a_backfill_leads_back_to_what_was_typed(site: Site) -> None:
    olga = site.logged_in("olga")
    typed = {"start": "2026-11-01T13:00Z", "end": "2026-11-01T14:00Z", "mode": "ordered", "drain": "17 minutes",
             "settings": "spark.sql.shuffle.partitions=8", "allow_incomplete": "yes"}  # fmt: skip
    asked = olga.post("/apps/shop/backfill", data={"form_key": form_key(olga), **typed}).text
    back = re.search(r'class="button" href="([^"]+)">No, go back', asked)
    assert back is not None
    assert "form_key" not in back[1]
    page = olga.get(html.unescape(back[1])).text
    assert all(f'value="{typed[name]}"' in page for name in ("start", "end", "drain"))
    assert "<option selected>ordered" in page
    assert ">spark.sql.shuffle.partitions=8</textarea>" in page
    assert 'name="allow_incomplete" value="yes" checked' in page


def test_a_publication_that_was_broken_off_can_be_undone(site: Site) -> None:
    run = a_backfill(site)
    site.store.update(run.id, publication={"state": "partly published", "at": "2026-11-01T00:00:00+00:00"})
    olga = site.logged_in("olga")
    assert "Undo</button>" in olga.get(f"/runs/{run.id}/publish").text
    asked = olga.post(f"/runs/{run.id}/undo", data={"form_key": form_key(olga)}).text
    assert f"rekappa undo {run.id} --yes --json" in asked


def test_switching_a_source_is_kept_for_the_next_runs_of_both_faces(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    olga = site.logged_in("olga")
    asked = {"form_key": form_key(olga), "key": "sources.clicks.selected", "value": "backfill"}
    first = olga.post("/apps/shop/override", data=asked).text
    assert "sources.clicks.selected is &#39;live&#39;" in first
    assert site.desk.overrides("shop") == []
    assert olga.post("/apps/shop/override", data={**asked, "sure": "yes"}).status_code == 303
    assert "Take back" in olga.get("/apps/shop").text
    monkeypatch.chdir(site.folder)
    monkeypatch.setenv("REKAPPA_HOME", str(site.home.root))
    told = CliRunner().invoke(main, ["start", "shop", "--dry-run", "--json"])
    assert "--set=sources.clicks.selected=backfill" in json.loads(told.stdout)["would"]
    wrong = olga.post("/apps/shop/override", data={**asked, "value": "nope", "sure": "yes"})
    assert wrong.status_code == 409
    assert CliRunner().invoke(main, ["config", "shop", "--forget", "sources.clicks.selected"]).exit_code == 0
    assert site.desk.overrides("shop") == []
    assert [(one.what, one.face) for one in site.desk.deeds(app="shop")] == [
        ("override", "cli"),
        ("override", "console"),
    ]


def test_what_is_written_in_a_form_is_never_an_option(site: Site) -> None:
    form = WindowForm("2026-11-01", "2026-11-02", ("--allow-incomplete",), "bulk", {"drain": "1h"}, ("--json=x",))
    assert form.words() == (
        "--start=2026-11-01T00:00Z", "--end=2026-11-02T00:00Z", "--mode=bulk", "--region=--allow-incomplete",
        "--drain=1h", "--profile-set=--json=x",
    )  # fmt: skip
    for wrong in (
        WindowForm("now", "2026-11-02"),
        WindowForm("2026-11-02", "2026-11-01"),
        WindowForm("2026-11-01", "2026-11-02", mode="--force"),
        WindowForm("2026-11-01", "2026-11-02", margins={"drain": "--force"}),
        WindowForm("2026-11-01", "2026-11-02", margins={"slice-rows": "-1"}),
    ):
        with pytest.raises(PlanError):
            wrong.words()


@pytest.mark.parametrize("dry", [True, False])
def test_every_way_to_restart_a_job_is_a_command_that_rekappa_takes(site: Site, dry: bool) -> None:
    """Each is understood, and refused only because the app never ran: a wrong word would be told as one."""
    core = Core(site.home, site.folder, "olga", "console")
    ways = (RestartFrom("2026-11-01T13:00Z"), RestartFrom("7"), RestartFrom(savepoint="mark"), RestartFrom(new=True),
            RestartFrom(nothing=True))  # fmt: skip
    a_backfill(site)
    for way in ways:
        change = rewind_change(core, "shop", way, dry=dry)
        told = CliRunner().invoke(main, change.words, env={"REKAPPA_HOME": str(site.home.root)})
        assert (told.exit_code, "it never ran here" in told.stderr) == (2, True), (change.words, told.stderr)
    for savepoint in (savepoint_change(core, "shop", "mark"), drop_change(core, "shop", "mark")):
        told = CliRunner().invoke(main, savepoint.words, env={"REKAPPA_HOME": str(site.home.root)})
        assert (told.exit_code, "Usage" in told.stderr) == (2, False), told.stderr
    for wrong in (RestartFrom(), RestartFrom("7", nothing=True)):
        with pytest.raises(RunError, match="choose one point"):
            rewind_change(core, "shop", wrong)


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
