"""How long it takes, and how much memory, to plan many files.

Three sources, one of them ten times busier, every hundredth file wide as after a compaction, in no order. Each
size runs in a process of its own, so that its peak memory is its own. "plan" is splits in, slices out; "save"
writes them; "slice" reads one back, as every micro-batch does. Making the splits is not counted as planning,
but they count in the memory.
"""

from __future__ import annotations

import json
import math
import random
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rekappa.plan.model import RowGroup, Split
from rekappa.plan.ordered import plan_slices
from rekappa.plan.plan import Estimate, JobPlan, Mode, Plan
from rekappa.plan.store import PlanFile, save
from rekappa.storage.location import Location
from rekappa.timeline import Window

SIZES = (10_000, 100_000, 1_000_000)
LIMIT_SECONDS = 20.0
LIMIT_BYTES = 2 * 1024**3
_START = datetime(2026, 1, 1, tzinfo=UTC)


def files(count: int) -> tuple[Window, list[Split]]:
    """So many files over as many stretches of time: more files are a longer window, not denser ones."""
    chance = random.Random(count)
    spacing = timedelta(seconds=10)
    splits = []
    for number in range(count):
        source = ("impressions", "playbacks", "searches")[0 if number % 12 < 10 else number % 12 - 9]
        low = _START + number * spacing + timedelta(seconds=chance.randrange(60))
        wide = number % 100 == 0
        high = low + timedelta(minutes=59 if wide else 4)
        groups = tuple(
            RowGroup(10_000, low + timedelta(minutes=15 * i), min(high, low + timedelta(minutes=15 * i + 14)))
            for i in range(4 if wide else 0)
        )
        path = f"s3://lake/events/{source}/data/ts_hour={low:%Y-%m-%d-%H}/region=eu/00000-{number}-{chance.random()}.parquet"
        splits.append(Split(source, path, 40_000, 4_000_000, low, high, "eu", groups=groups))
    chance.shuffle(splits)
    return Window(_START, _START + count * spacing), splits


def measure(count: int) -> dict[str, Any]:
    """Plan, save and read back so many files, in this process."""
    window, splits = files(count)
    started, started_cpu = time.perf_counter(), time.process_time()
    slices = plan_slices(splits, max_misalignment=timedelta(minutes=15), reads=window, max_rows=20_000_000)
    planned, planned_cpu = time.perf_counter(), time.process_time()
    job = JobPlan(
        "job", ("sink",), Mode.ORDERED, "", timedelta(), "", timedelta(), "", window, (), slices, (), (), Estimate(0, 0)
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Location.local(Path(folder) / "plan")
        saving = time.perf_counter()
        save(Plan("app", window, (), (job,)), path)
        saved = time.perf_counter()
        size = path.size()
        opened = PlanFile(path)
        opened.slice("job", 0)
        reading = time.perf_counter()
        opened.slice("job", len(slices) // 2)
        read = time.perf_counter()
    return {
        "files": count,
        "slices": len(slices),
        "plan_seconds": round(planned - started, 3),
        "plan_cpu_seconds": round(planned_cpu - started_cpu, 3),
        "save_seconds": round(saved - saving, 3),
        "slice_milliseconds": round((read - reading) * 1000, 2),
        "plan_bytes": size,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> dict[str, Any]:
    """Every size in its own process; how the time grows from the smallest to the largest; and the limits."""
    results = []
    for count in SIZES:
        answer = subprocess.run(
            [sys.executable, str(Path(__file__).resolve()), str(count)], check=True, capture_output=True, text=True
        )
        results.append(json.loads(answer.stdout))
    first, last = results[0], results[-1]
    growth = math.log(last["plan_cpu_seconds"] / first["plan_cpu_seconds"]) / math.log(last["files"] / first["files"])
    return {
        "sizes": results,
        "growth_exponent": round(growth, 2),
        "within_limits": last["plan_seconds"] < LIMIT_SECONDS and last["peak_rss_bytes"] < LIMIT_BYTES,
    }


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1])) if len(sys.argv) > 1 else main()))
