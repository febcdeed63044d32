"""Whatever changes something, or gives a verdict, stands in the audit trail: no command can be added without it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rekappa.cli.main import COMMANDS, main
from rekappa.home import Home
from rekappa.operations.deeds import record_deed, record_outcome
from rekappa.store.desk import Desk
from rekappa.store.host import this_host
from rekappa.store.task import Task
from rekappa.tasks.keeper import TASK

OF_THIS_MACHINE = {"new", "manifest", "console", "up", "down"}
"""They write files of a folder, or start and stop a server of this machine: nothing of a project's runs."""
TOLD = ("record_deed(", "begin(", "keep_override(", "live_progress(", "on_start=_started", "tell(")
"""What writes into the trail, by itself or by what it calls."""
VERDICTS = {"validate", "archive verify"}


def commands(group: click.Group, above: str = "") -> Iterator[tuple[str, click.Command]]:
    for name in COMMANDS if not above else group.commands:
        found = group.get_command(click.Context(group), name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, f"{above}{name} ")
        else:
            yield f"{above}{name}", found


def changing() -> list[tuple[str, click.Command]]:
    every = commands(main)
    return [
        (name, one)
        for name, one in every
        if name not in OF_THIS_MACHINE and (any(option.name == "dry_run" for option in one.params) or name in VERDICTS)
    ]


def test_every_command_that_changes_something_tells_who_did_it() -> None:
    found = changing()
    assert len(found) > 20
    silent = []
    for name, one in found:
        assert one.callback is not None
        own = inspect.getsource(inspect.unwrap(one.callback))
        if not any(word in own for word in TOLD):
            silent.append(name)
    assert silent == []


def test_a_verdict_is_told_in_the_name_of_whoever_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / ".rekappa")
    record_deed(home, "validate", "shop", "backfill_1")
    record_outcome(home, "verdict", "shop", "backfill_1", outcome="passed")
    host = this_host()
    Desk.open(home).add_task(Task("task_1", ("validate", "x"), "olga", "console", "/", host.name, host.machine))
    monkeypatch.setenv(TASK, "task_1")
    record_deed(home, "validate", "shop", "backfill_1")
    record_outcome(home, "verdict", "shop", "backfill_1", outcome="failed")
    told = [(one.who, one.face, one.what, one.details.get("outcome")) for one in Desk.open(home).deeds(app="shop")]
    assert told[0] == ("olga", "console", "verdict", "failed")
    assert [one[1:] for one in told[1:]] == [("cli", "verdict", "passed"), ("cli", "validate", None)], (
        "what a task was started for is told when it is started"
    )


@pytest.mark.parametrize("words", [["savepoint", "drop", "shop", "mark"], ["savepoint", "take", "shop"]])
def test_what_is_refused_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, words).exit_code == 2
    assert Desk.found(Home(tmp_path / ".rekappa")) is None
