"""A new app passes its own test at once, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rekappa.cli.new import create


def test_a_new_app_passes_its_own_test(tmp_path: Path) -> None:
    folder = create("shop", tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "2 passed" in told.stdout
