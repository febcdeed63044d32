"""Commands that only read, and the dry runs of all others: where there is no project they say so and make nothing."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rekappa.cli.main import main
from rekappa.cli.reference import commands

APP = """\
from rekappa import App

app = App("shop")


@app.job
def totals(clicks):
    return clicks
"""
CONFIG = """\
app: shop
sources:
  clicks:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {type: kafka, topic: clicks}
      backfill: {type: iceberg, table: lake.events.clicks}
sinks:
  totals: {type: iceberg, table: lake.shop.totals, event_time: event_ts}
"""
VALUES = {
    "app": "shop",
    "run": "backfill_20261101_130000_ab12",
    "name": "another",
    "start": "2026-11-01T13:00Z",
    "end": "2026-11-01T14:00Z",
}
WRITES = {("demo",)}
"""What has no dry run and is there to write."""


def named(words: tuple[str, ...]) -> click.Command:
    found: click.Command = main
    for word in words:
        assert isinstance(found, click.Group)
        inner = found.get_command(click.Context(found), word)
        assert inner is not None
        found = inner
    return found


def leaves() -> list[tuple[str, ...]]:
    return [words for words in commands() if not isinstance(named(words), click.Group)]


def call(words: tuple[str, ...]) -> list[str]:
    """The command with whatever it must be told, as a dry run if it has one."""
    told = list(words)
    for param in named(words).params:
        value = VALUES.get(param.name or "", "something")
        if isinstance(param, click.Argument):
            told.append(value)
        elif param.required:
            told += [param.opts[0], value]
        elif param.name in ("dry_run", "as_json"):
            told.append(param.opts[0])
    return told


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "rekappa.yaml").write_text(CONFIG)
    (tmp_path / "shop" / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REKAPPA_HOME", raising=False)
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    return tmp_path


@pytest.mark.parametrize("words", [one for one in leaves() if one not in WRITES], ids=" ".join)
def test_a_folder_without_a_project_stays_without_one(folder: Path, words: tuple[str, ...]) -> None:
    before = sorted(folder.rglob("*"))
    told = CliRunner().invoke(main, call(words))
    assert sorted(folder.rglob("*")) == before
    assert told.exit_code in (0, 1, 2), told.output
    assert "unexpected" not in told.stderr, told.stderr
    if told.exit_code:
        assert told.stdout == ""
        assert told.stderr.startswith(("error: Cannot", "Usage:")), told.stderr
    else:
        json.loads(told.stdout)


@pytest.mark.parametrize(
    "line",
    [
        "runs", "runs x", "stop x", "pause x", "resume x", "validate x", "publish x", "undo x", "clean shop",
        "plan shop --start 2026-11-01 --end 2026-11-02", "archive verify shop", "archive compact shop",
    ],
)  # fmt: skip
def test_they_say_that_there_is_no_project(folder: Path, line: str) -> None:
    told = CliRunner().invoke(main, line.split())
    assert told.exit_code == 2
    assert f"Cannot find a project in {folder}" in told.stderr
    assert "hint: Go to the folder in which you ran rekappa" in told.stderr
