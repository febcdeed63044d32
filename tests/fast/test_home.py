"""The project folder: where it is, and that nobody but its owner can look into it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rekappa.home import Home
from rekappa.spark.launch import Launch, launching
from rekappa.store.kept import keep_code
from rekappa.store.runs import RunStore


def others_can_enter(folder: Path) -> bool:
    return bool(stat.S_IMODE(folder.stat().st_mode) & 0o077)


def keep_some_code(home: Home) -> None:
    (home.root.parent / "app.py").write_text("x = 1\n")
    keep_code(home, home.root.parent)


def start_spark(home: Home) -> None:
    with launching(Launch({}, home)):
        pass


@pytest.mark.parametrize("write", [RunStore.open, keep_some_code, start_spark, Home.made])
@pytest.mark.parametrize("there", [True, False])
def test_whatever_is_written_first_closes_the_folder_to_others(
    tmp_path: Path, write: Callable[[Home], object], there: bool
) -> None:
    home = Home(tmp_path / ".rekappa")
    before = os.umask(0o022)
    try:
        if there:
            home.root.mkdir()
            assert others_can_enter(home.root)
        write(home)
    finally:
        os.umask(before)
    assert not others_can_enter(home.root)


PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from rekappa.home import Home
from rekappa.spark.launch import Launch, launching

out = os.fdopen(os.dup(1), "w")
with launching(Launch({"spark.sql.catalog.lake.token": "hunter2"}, Home(Path(sys.argv[1])))):
    path = os.environ["PYSPARK_SUBMIT_ARGS"].split()[1]
    assert Path(path).is_file() and "hunter2" in Path(path).read_text() and "hunter2" in Path(path).read_text()
    print(path, file=out, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux has files in memory")
def test_a_kill_during_the_start_of_spark_leaves_no_password(tmp_path: Path, number: signal.Signals) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    home = tmp_path / ".rekappa"
    command = [sys.executable, "-c", PROGRAM, str(home)]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        try:
            name = started.stdout.readline().strip()
            # By a process that it has not started itself, as the JVM: settings can be read while they are needed.
            assert "hunter2" in Path(name).read_text()
        finally:
            started.send_signal(number)
        assert started.wait(60) == -number
    assert not Path(name).exists()
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not [file for file in files if b"hunter2" in file.read_bytes()]


def test_a_path_without_a_scheme_is_on_this_disk_whatever_the_default_file_system_is(tmp_path: Path) -> None:
    home = Home(tmp_path / "a project" / ".rekappa")
    assert home.address("out/totals") == f"file:{tmp_path}/a project/out/totals"
    assert home.address("/out/totals") == "file:/out/totals"
    for told in ("s3a://bucket/totals", "hdfs:/totals", "file:/totals"):
        assert home.address(told) == told
