"""`rekappa diff`: what can't be exported is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from rekappa.cli.main import main


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["last", "--export", "differences.xls"], "must end in .parquet, .csv or .jsonl"),
        (["last", "--export", "nowhere/differences.csv"], "there is no folder nowhere"),
        (["last"], "Cannot find a project"),
    ],
)
def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REKAPPA_HOME", str(tmp_path / ".rekappa"))
    answer = CliRunner().invoke(main, ["diff", *words])
    assert answer.exit_code == 2, answer.output
    assert told in answer.stderr
    assert list(tmp_path.iterdir()) == []
