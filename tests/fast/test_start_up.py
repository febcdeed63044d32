"""The command line answers at once: nothing heavy is imported before a command needs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pyspark", "pyiceberg", "pyarrow", "pandas", "confluent_kafka", "pydantic", "sqlalchemy")
SCRIPT = """
import sys
from rekappa.cli.main import main
sys.argv = ["rekappa", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    code = end.code
print("LOADED", *sorted({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.mark.parametrize("arguments", [["--help"], ["up", "--help"], ["status", "--json"]])
def test_nothing_heavy_is_imported(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True)
    loaded = done.stdout.rpartition("LOADED")[2].split()
    assert "click" in loaded
    assert sorted(set(HEAVY) & set(loaded)) == []
