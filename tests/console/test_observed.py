"""What slow commands said last: asked in the background, kept over a restart, not lost when they fail."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from console.site_of import CONFIG
from console.waiting import wait_until
from rekappa.console.observed import FOR_EVER, Observation, Observed
from rekappa.home import Home
from rekappa.stack.process import birth_of
from rekappa.store.record import Kind, Run
from rekappa.store.runs import RunStore

NOW = timedelta()
"""Nothing is as fresh as that."""


def settled(observed: Observed, *words: str, fresh: timedelta = FOR_EVER) -> Observation:
    wait_until(lambda: not observed.ask(*words, fresh=fresh).going, "the command has answered")
    return observed.ask(*words, fresh=fresh)


def test_an_answer_is_there_at_once_once_it_is_known(tmp_path: Path) -> None:
    home = Home(tmp_path / ".rekappa")
    store = RunStore.open(home)
    store.create(Run("live_1", "shop", Kind.LIVE, "f"))
    observed = Observed(home, tmp_path)
    first = observed.ask("runs", fresh=FOR_EVER)
    assert (first.value, first.at, first.going) == (None, None, True)
    known = settled(observed, "runs")
    assert [run["id"] for run in known.value] == ["live_1"]
    assert known.at is not None
    store.create(Run("live_2", "shop", Kind.LIVE, "f"))
    assert len(observed.ask("runs", fresh=NOW).value) == 1, "the old one, at once"
    wait_until(lambda: len(observed.ask("runs", fresh=FOR_EVER).value) == 2, "it was asked again")
    assert observed.ask("runs", version="another", fresh=FOR_EVER).value is None
    observed.close()
    again = Observed(home, tmp_path)
    assert len(again.ask("runs", fresh=FOR_EVER).value) == 2, "kept over a restart"
    again.close()
    assert not again.ask("runs", fresh=NOW).going, "nothing is asked after the end"


def test_a_failure_is_told_beside_what_was_known(tmp_path: Path) -> None:
    home = Home(tmp_path / ".rekappa").made()
    observed = Observed(home, tmp_path)
    missing = settled(observed, "runs")
    assert (missing.value, "nothing has run there yet" in (missing.error or "")) == (None, True)
    RunStore.open(home).create(Run("live_1", "shop", Kind.LIVE, "f"))
    observed.ask("runs", fresh=NOW)
    wait_until(lambda: observed.ask("runs", fresh=FOR_EVER).value is not None, "it answers now")
    for file in home.root.glob("runs.db*"):
        file.unlink()
    observed.ask("runs", fresh=NOW)
    wait_until(lambda: observed.ask("runs", fresh=FOR_EVER).error is not None, "it fails")
    assert observed.ask("runs", fresh=FOR_EVER).value is not None
    observed.close()


ASKING = """
import sys
from pathlib import Path

from rekappa.console.observed import Observed
from rekappa.home import Home

folder = Path(sys.argv[1])
observed = Observed(Home(folder / ".rekappa").made(), folder)
observed.ask("config", str(folder / "stuck"))
sys.stdin.read()
"""
STUCK = """
import os
import time
from pathlib import Path

Path(__file__).with_name("pid").write_text(str(os.getpid()))
while True:
    time.sleep(3600)
"""


def test_a_question_ends_with_whoever_asked_it_however_that_ended(tmp_path: Path) -> None:
    """The import of the app that is asked about never ends; the asker is killed."""
    (tmp_path / "stuck").mkdir()
    (tmp_path / "stuck" / "rekappa.yaml").write_text(CONFIG)
    (tmp_path / "stuck" / "app.py").write_text(STUCK)
    told = tmp_path / "stuck" / "pid"
    with subprocess.Popen([sys.executable, "-c", ASKING, str(tmp_path)], stdin=subprocess.PIPE) as asker:
        try:
            wait_until(lambda: told.exists() and told.read_text() != "", "the question is at it")
            pid = int(told.read_text())
            assert birth_of(pid) is not None
        finally:
            asker.kill()
    wait_until(lambda: birth_of(pid) is None, "it has ended too")
