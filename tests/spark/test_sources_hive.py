"""Hive support is fixed when Spark starts, and its local metastore takes one process at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_hive_passes_the_source_contract(tmp_path: Path) -> None:
    suite = Path(__file__).with_name("sources_hive_suite.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", str(suite)],
        env={**os.environ, "SOURCES_HOME": str(tmp_path / ".rekappa")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
