"""What slow commands said last: asked in the background, kept over a restart, not lost when they fail."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from console.test_changes import wait_until
from rekappa.console.observed import FOR_EVER, Observation, Observed
from rekappa.home import Home
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
