"""What killed rewinds leave, by processes that are really killed; and what goes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rekappa.checkpoints.attempts import LEFT, drop_left, forking, trial
from rekappa.home import Home
from rekappa.store.record import Kind, made_at, new_run_id

KILLED = """
import os, signal, sys
from pathlib import Path
from rekappa.checkpoints.attempts import forking, trial
from rekappa.home import Home

home, operation, doing = Home(Path(sys.argv[1])), sys.argv[2], sys.argv[3]
with trial(home, "app", operation, "plays") if doing == "trial" else forking(home, "app", operation) as scratch:
    folder = scratch or home.checkpoint("app", operation) / "plays"
    (folder / "metadata").write("{}")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def kept(home: Home) -> tuple[list[str], list[str]]:
    """The checkpoints and the attempts of the app."""
    forks, tries = ((home.storage / place / "app").names() for place in ("checkpoints", "preflight"))
    return forks, tries


def test_what_a_kill_has_left_goes_a_day_later(tmp_path: Path) -> None:
    home, begun = Home(tmp_path), datetime.now(UTC)
    tried, forked, recorded = "live_tried", "live_forked", "live_recorded"
    ids = {name: f"{new_run_id(Kind.LIVE)}{name[5:]}" for name in (tried, forked, recorded)}
    for name, operation in ids.items():
        words = [sys.executable, "-c", KILLED, str(tmp_path), operation, "trial" if name == tried else "fork"]
        assert subprocess.run(words, check=False, env={**os.environ}).returncode == -signal.SIGKILL
    (home.checkpoint("app", "live_of_somebody") / "plays/metadata").write("{}")
    (home.storage / "preflight/app/no run at all/file").write("{}")
    both = [ids[forked], ids[recorded]]
    known = {ids[recorded]}
    drop_left(home, "app", known, begun + LEFT - timedelta(minutes=1))
    assert kept(home) == (sorted([*both, "live_of_somebody"]), sorted([*ids.values(), "no run at all"]))
    drop_left(home, "app", known, datetime.now(UTC) + LEFT + timedelta(minutes=1))
    assert kept(home) == (sorted([ids[recorded], "live_of_somebody"]), ["no run at all"])


def test_an_attempt_that_ends_leaves_nothing_but_the_run(tmp_path: Path) -> None:
    home, operation = Home(tmp_path), new_run_id(Kind.LIVE)
    with trial(home, "app", operation, "plays") as scratch:
        (scratch / "metadata").write("{}")
    assert kept(home) == ([], [])
    with forking(home, "app", operation):
        (home.checkpoint("app", operation) / "plays/metadata").write("{}")
    assert kept(home) == ([operation], [])


@pytest.mark.parametrize("known", [True, False])
def test_a_store_that_fails_may_know_the_run_all_the_same(tmp_path: Path, known: bool) -> None:
    home, operation = Home(tmp_path), new_run_id(Kind.LIVE)

    def broken() -> None:
        with forking(home, "app", operation):
            (home.checkpoint("app", operation) / "plays/metadata").write("{}")
            raise ConnectionError

    with pytest.raises(ConnectionError):
        broken()
    assert kept(home) == ([operation], [operation])
    drop_left(home, "app", {operation} if known else (), datetime.now(UTC) + LEFT + timedelta(minutes=1))
    assert kept(home) == ([operation] if known else [], [])


def test_an_id_says_when_it_was_drawn() -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    moment = made_at(new_run_id(Kind.LIVE))
    assert moment is not None
    assert before <= moment <= datetime.now(UTC)
    assert [made_at(word) for word in ("", "plays", "live_2026_13_ab", "live")] == [None] * 4
