"""A replay killed with -9 at any point goes on where it was: no row lost, none doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from archives import DAY, create_archive, events, save_plan

from rekappa.config.model import AppConfig
from rekappa.home import Home
from rekappa.spark.offsetlog import last_committed, last_planned
from rekappa.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VICTIM = Path(__file__).with_name("replay_victim.py")


@pytest.mark.timeout(900)  # five starts of Spark
def test_killed_at_several_points(spark: SparkSession, bare_config: AppConfig, home: Home, tmp_path: Path) -> None:
    archive = create_archive(spark, bare_config, home)
    events(spark, 2000).writeTo(archive.name).append()
    plan = save_plan(Location.local(tmp_path / "plan"), {"events": archive}, DAY, bound=timedelta(minutes=30))
    count = len(plan.jobs[0].slices)
    checkpoint, out = Location.local(tmp_path / "checks"), tmp_path / "out"
    out.mkdir()

    def planned() -> int:
        return -1 if (number := last_planned(checkpoint)) is None else number

    def committed() -> int:
        return -1 if (number := last_committed(checkpoint)) is None else number

    moments: list[tuple[str, Callable[[], bool]]] = [
        ("the offsets are logged, nothing is written", lambda: planned() >= 1 and committed() < planned()),
        ("in the middle of a batch", lambda: planned() >= 3 and (out / f"_{planned()}").exists()),
        (
            "the sink has the batch, the commit log does not",
            lambda: planned() >= 5 and (out / f"batch={planned()}").exists() and committed() < planned(),
        ),
        ("the closing batch is logged", lambda: planned() == count and committed() == count - 1),
    ]
    for name, moment in moments:
        assert _killed_at(moment, home, tmp_path, archive.name), f"the run ended before: {name}"
        assert not (out / "finished").exists()
    victim = _start(home, tmp_path, archive.name)
    assert victim.wait(120) == 0
    assert (out / "finished").read_text() == "True"

    made = spark.read.parquet(str(out)).select("start", "user", "n").collect()
    expected = spark.sql(
        f"SELECT window(event_ts, '10 minutes').start AS start, user, count(*) AS n FROM {archive.name} "
        "GROUP BY window(event_ts, '10 minutes'), user"
    ).collect()
    assert sorted(tuple(row) for row in made) == sorted(tuple(row) for row in expected)
    assert sum(row.n for row in made) == 2000


def _start(home: Home, folder: Path, table: str) -> subprocess.Popen[bytes]:
    words = [str(home.root), str(folder / "plan"), str(folder / "checks"), table, str(folder / "out")]
    with (folder / "victim.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(VICTIM), *words], stdout=log, stderr=log, start_new_session=True, cwd=folder
        )


def _killed_at(moment: Callable[[], bool], home: Home, folder: Path, table: str) -> bool:
    """Start the replay and kill its whole process group at the moment. False if it ended before."""
    victim = _start(home, folder, table)
    try:
        while victim.poll() is None:
            if moment():
                return True
            time.sleep(0.005)
        return False
    finally:
        # Spark's JVM and its Python workers are in the victim's own session.
        if victim.poll() is None:
            os.killpg(victim.pid, signal.SIGKILL)
        victim.wait()
