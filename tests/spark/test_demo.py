"""`rekappa demo` is a test itself: it says why rows differ, and ends with 1 if they are not right in the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(1200)
def test_the_demo_proves_its_repair(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rekappa.cli.main", "demo", "--folder", str(tmp_path / "demo"), "--json"],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "REKAPPA_HOME"},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert found["validation"] == "passed"
    assert found["rows_by_the_change_in_code"] > 0
    assert (found["rows_late_in_production"], found["rows_unexplained"]) == (0, 0)
    assert found["match_after"] == "100.00 %"
    assert found["rows_that_differ_from_a_clean_run"] == 0
