"""`rekappa demo` is a test itself: it says why rows differ, and ends with 1 if they are not right in the end. Then what
it left behind is repaired once more, by clicking."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from console.browser import HOW, browser, chromium
from console.sample import served

from rekappa.console.context import Console
from rekappa.console.observed import Observed
from rekappa.demo.story import EXPECTED, WINDOW
from rekappa.home import Home
from rekappa.store.runs import RunStore
from rekappa.timeline import format_instant

TOKEN = "owner"
HOUR = 3_600_000
"""Milliseconds until a wait is given up."""


def tell(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "rekappa.cli.main", "demo", *words, "--folder", str(folder), "--json"],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "REKAPPA_HOME"},
        cwd=folder.parent,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a demo that was told to its end."""
    folder: Path = tmp_path_factory.mktemp("told") / "demo"
    done = tell(folder)
    assert "console" in done.stderr.splitlines()[-1], "it ends by telling how to look at it"
    (folder / "told.json").write_text(done.stdout)
    return folder


@pytest.mark.timeout(1200)
def test_the_demo_proves_its_repair(told: Path) -> None:
    found = json.loads((told / "told.json").read_text())
    assert found["validation"] == "passed"
    assert found["rows_by_the_change_in_code"] > 0
    assert (found["rows_late_in_production"], found["rows_unexplained"]) == (0, 0)
    assert found["match_after"] == "100.00 %"
    assert found["rows_that_differ_from_a_clean_run"] == 0


@pytest.mark.timeout(1200)
def test_two_chained_apps_are_made_right_by_one_command(tmp_path: Path) -> None:
    found = json.loads(tell(tmp_path / "demo", "rewind").stdout)
    assert found["rows_wrong_before"] > 0
    assert found["messages_that_no_longer_count"] > 0
    assert found["messages_wiped"] == 0
    assert found["rows_that_differ_from_a_clean_run"] == 0


@pytest.mark.timeout(2400)
@pytest.mark.skipif(chromium() is None, reason=HOW)
def test_the_same_by_clicking(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what the story published, switch a source, plan, backfill, watch, validate, publish. Every change is a
    process with a Spark of its own: each is clicked once."""
    monkeypatch.delenv("REKAPPA_HOME", raising=False)
    home = Home(told / ".rekappa")
    store = RunStore.existing(home)
    first = store.run("last")
    assert (first.publication or {})["state"] == "published"
    console = Console(home, told, Observed(home, told), TOKEN, "anna")
    with served(console) as address, browser() as opened:
        page = opened.new_page()
        page.set_default_timeout(HOUR)
        page.goto(f"{address}/login?token={TOKEN}&next=/runs/{first.id}/publish")
        page.get_by_role("button", name="Undo").click()
        page.get_by_role("button", name="Yes").click()
        page.locator("h2 .badge", has_text="undone").wait_for()

        page.goto(f"{address}/apps/plays")
        page.get_by_role("radio", name="backfill iceberg lake.events.playbacks").check()
        page.get_by_role("button", name="Switch playbacks").click()
        page.get_by_role("button", name="Yes").click()
        page.get_by_text("sources.playbacks.selected").first.wait_for()
        page.get_by_role("button", name="Take back").click()
        page.get_by_role("button", name="Yes").click()

        page.get_by_role("link", name="Backfill", exact=True).click()
        page.fill("#start", format_instant(WINDOW.start))
        page.fill("#end", format_instant(WINDOW.end))
        page.get_by_role("button", name="Make the plan").click()
        page.locator("#plan dt", has_text="To read").wait_for()
        page.get_by_role("button", name="Start the backfill").click()
        page.get_by_role("button", name="Yes").click()
        page.get_by_role("heading", name="Backfill finished").wait_for()
        run = store.run("last")
        assert run.id != first.id
        assert page.url.endswith(run.id), "it led from the task to the run"

        page.get_by_role("link", name="Validate", exact=True).click()
        page.get_by_label("Expected of plays").fill(EXPECTED)
        page.get_by_role("button", name="Validate").click()
        page.get_by_role("button", name="Yes").click()
        page.get_by_role("link", name="To publish").click()
        page.get_by_role("button", name="Show the effect").click()
        page.get_by_role("button", name="Publish", exact=True).click()
        page.get_by_role("button", name="Yes").click()
        page.locator("h2 .badge", has_text="published").wait_for()
        page.get_by_role("button", name="Undo").wait_for()
        verdict = store.run(run.id).validation or {}
        assert verdict["outcome"] == "passed"
        page.goto(f"{address}/audit")
        deeds = page.inner_text("main")
        assert all(word in deeds for word in ("undo", "override", "backfill", "validate", "publish")), deeds
    assert [(store.run(one).publication or {})["state"] for one in (first.id, run.id)] == ["undone", "published"]
