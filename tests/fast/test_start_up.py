"""The command line answers at once: nothing heavy is imported before a command needs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def test_spark_starts_with_the_classes_that_were_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rekappa.spark.classes import archive, sharing

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert sharing() == [], "none were kept: the JVM is told nothing"
    archive().parent.mkdir(parents=True)
    archive().touch()
    assert f"-XX:SharedArchiveFile={archive()}" in sharing()
    assert "-Xshare:auto" in sharing(), "an archive that Java does not like is no reason not to start"
