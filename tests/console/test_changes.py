"""Every change asks first, is written down, and is a command in a process of its own."""

from __future__ import annotations

import html
import json
import re

import pytest
from click.testing import CliRunner

from console.site_of import Site, a_backfill, form_key
from console.test_pages import a_verdict
from console.waiting import ended
from rekappa.cli.main import main
from rekappa.errors import PlanError, RunError
from rekappa.operations.core import Core
from rekappa.operations.points import RestartFrom, drop_change, rewind_change, savepoint_change
from rekappa.operations.window import WindowForm
from rekappa.store.host import this_host
from rekappa.store.leases import run_lease
from rekappa.store.record import Kind, Run, State
from rekappa.store.task import Task, TaskState
from rekappa.tasks.files import answer, answer_file
from rekappa.tasks.standing import tasks


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
