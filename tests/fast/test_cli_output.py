"""One interface, two renderings."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import SecretStr

from rekappa.cli.main import main
from rekappa.cli.output import output
from rekappa.shown import plain, readable


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Point:
    x: int


def test_a_table_as_text_keeps_what_looks_like_markup(capsys: pytest.CaptureFixture[str]) -> None:
    output(False).table("Runs [bold]", ["run id", "rows"], [("[red]a", 1_234_567), ("b", None)])
    told = capsys.readouterr().out
    assert "Runs [bold]" in told
    assert "[red]a" in told
    assert "1,234,567" in told


def test_a_table_and_a_record_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    out = output(True)
    out.table("Runs", ["Run id", "rows"], [("a", 1)])
    assert json.loads(capsys.readouterr().out) == [{"run_id": "a", "rows": 1}]
    out.record({"at": datetime(2026, 1, 1, tzinfo=UTC), "took": timedelta(minutes=90)})
    assert json.loads(capsys.readouterr().out) == {"at": "2026-01-01T00:00Z", "took": "1h 30m"}


@pytest.mark.parametrize("as_json", [False, True])
def test_progress_and_remarks_leave_stdout_to_the_data(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    out = output(as_json)
    with out.progress("Backfill", 10) as line:
        for done in range(10):
            line.update(done, text="slice")
    out.document({"a": 1})
    if as_json:
        out.message("done")
    told = capsys.readouterr()
    assert told.out == ('{\n  "a": 1\n}\n' if as_json else "")


def test_a_refused_command_leaves_stdout_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    """Two commands in one process, as a console or a test has them."""
    before = sys.stdout
    assert CliRunner().invoke(main, ["validate", "--json"]).exit_code == 2
    assert sys.stdout is before
    output(True).document({"a": 1})
    assert json.loads(capsys.readouterr().out) == {"a": 1}


def test_values() -> None:
    assert plain({"c": Colour.RED, "p": Point(1), "f": Path("a"), "s": SecretStr("x"), "n": float("nan")}) == {
        "c": "red", "p": {"x": 1}, "f": "a", "s": "**********", "n": None,
    }  # fmt: skip
    assert [readable(value) for value in (None, True, 12345, 1.5, 0.00012345, [1, "a"], {"k": 2})] == [
        "-", "yes", "12345", "1.5", "0.000123", "1, a", "k: 2",
    ]  # fmt: skip


def test_nothing_but_data_reaches_stdout() -> None:
    """Not even from a program that the app starts."""
    code = """
import os
from rekappa.cli.output import JsonOutput, stdout_for_data
with stdout_for_data():
    print("printed")
    os.write(1, b"written\\n")
    os.system("echo started")
    JsonOutput().document({"a": "\u00fc"})
print("after")
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, encoding="utf-8")
    assert ran.stdout == '{\n  "a": "\u00fc"\n}\nafter\n'
    assert ran.stderr == "printed\nwritten\nstarted\n"
