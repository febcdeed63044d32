"""Whatever is typed after validate, publish, undo or clean: a refusal, never a traceback, never a change."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rekappa.cli.main import main

words = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["--yes", "--force", "--json", "--dry-run", "--ignore", "--expect", "changed=a", "--late", "keep",
         "--no-control", "--tolerance", "nan", "-1", "1e400",
         "--older-than", "--unvalidated", "--html", "--set", "a.b=c", "x" * 300, "../..", "' OR 1=1 --", "\x00"]
    ),
)  # fmt: skip


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["validate", "publish", "undo", "clean"]), st.lists(words, max_size=5))
def test_any_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, rest: list[str]) -> None:
    monkeypatch.setenv("REKAPPA_HOME", str(tmp_path / ".rekappa"))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, [command, *rest])
    assert result.exit_code in (0, 2), (result.output, result.exception)
    if result.exit_code == 0:
        assert "Usage:" in result.output, "only --help can succeed here"
    assert "Traceback" not in result.output
    assert "error: unexpected" not in result.stderr
    assert not [*tmp_path.rglob("*")]
