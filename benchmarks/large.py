"""`rekappa plan` over real Iceberg tables of 100,000 and of 1,000,000 files, end to end, and all its processes' memory.

The tables are made from metadata alone (`_large`): a plan reads no data. The window is the whole table, so that every
file is in the plan. REKAPPA_LARGE=100000 names other sizes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks import _large

SIZES = tuple(int(size) for size in os.environ.get("REKAPPA_LARGE", "100000,1000000").split(","))
CONFIG = """
app: large
sources:
  plays:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {type: kafka, topic: plays}
      past: {type: iceberg, table: lake.events.plays}
sinks:
  counted: {type: "null", event_time: start}
"""
APP = '''
from pyspark.sql import functions as F
from rekappa import App

app = App("large")


@app.job
def counted(plays):
    """Plays in ten minutes: state, so that the plan is one of slices."""
    timed = plays.withWatermark("event_ts", "10 minutes").groupBy(F.window("event_ts", "10 minutes").alias("w"))
    return timed.count().select(F.col("w.start").alias("start"), "count")
'''


def measure(count: int) -> dict[str, Any]:
    """Make a table of so many files, plan all of it, and say what that took."""
    home = made_table(count)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "large").mkdir()
        (root / "large" / "app.py").write_text(APP)
        (root / "large" / "rekappa.yaml").write_text(CONFIG)
        window = ["--start", _large.START.isoformat(), "--end", _large.end_of(count).isoformat()]
        command = [sys.executable, "-m", "rekappa.cli.main", "plan", "large", *window, "--mode", "ordered", "--json"]
        began = time.monotonic()
        with (root / "plan.json").open("w") as out:
            process = subprocess.Popen(command, cwd=root, env={**os.environ, "REKAPPA_HOME": str(home)}, stdout=out)
            with _Watched(process.pid) as seen:
                code = process.wait()
        seconds = time.monotonic() - began
        assert code == 0, (root / "plan.json").read_text()[-2000:]
        return {
            "files": count,
            "seconds": round(seconds, 1),
            "processor_seconds": round(seen.processor_seconds, 1),
            "peak_bytes_of_all_processes": seen.peak,
        }


def made_table(count: int) -> Path:
    """The project folder of a table of so many files: made once for each size, used again after."""
    kept = Path(os.environ.get("REKAPPA_BENCH_HOME", Path.home() / ".cache" / "rekappa" / "bench"))
    home = kept / f"large-{count}"
    if not (home / "made").exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(mode=0o700, parents=True)
        _large.create(home, count)
        (home / "made").touch()
    return home


class _Watched:
    """Adds up the resident memory of a process and all below it, five times a second; pages they share count twice."""

    def __init__(self, pid: int) -> None:
        self.pid, self.peak, self._ended = pid, 0, threading.Event()
        self._used: dict[int, float] = {}
        self._watch = threading.Thread(target=self._look, daemon=True)

    @property
    def processor_seconds(self) -> float:
        return sum(self._used.values())

    def __enter__(self) -> _Watched:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._watch.join()

    def _look(self) -> None:
        page, tick = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
        while not self._ended.wait(0.2):
            resident = 0
            for pid in _tree(self.pid):
                try:
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                resident += int(fields[21]) * page
                self._used[pid] = (int(fields[11]) + int(fields[12])) / tick
            self.peak = max(self.peak, resident)


def _tree(root: int) -> list[int]:
    """The process and all below it."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(folder.name))
    found, todo = [], [root]
    while todo:
        found.append(todo.pop())
        todo += children.get(found[-1], [])
    return found


def main() -> dict[str, Any]:
    busy = os.getloadavg()[0]
    sizes = [measure(count) for count in SIZES]
    return {"sizes": sizes, "beside": f"a load of {busy:.0f}", "wanted": "a million files in 60 s and 4 GB"}


if __name__ == "__main__":
    print(main())
