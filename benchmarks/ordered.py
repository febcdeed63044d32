"""Ordered mode against the plain batch job: the take-rate join of a day, micro-batch by micro-batch.

Every contender runs in a process of its own and writes the same kind of Iceberg table. `plain` is the simplest
hand-written batch join under Spark's default settings. Slice sizes and state stores are varied; so is alignment,
with the impressions, ten times as many as the playbacks, read ahead of them. REKAPPA_BENCH_ORDERED names the only
variants to run.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._reference import END, ROWS, START, bench_home, make_archive, reference_app
from benchmarks._replay import archive_source, planned
from benchmarks.bulk import JOB, SPARK_DEFAULTS
from rekappa.config.bind import load_app
from rekappa.plan.store import load, save
from rekappa.replay.ordered import HoldBack, SliceOutcome, run_slices
from rekappa.replay.tuning import machine_memory, process_settings
from rekappa.spark.private import ROCKSDB
from rekappa.spark.session import open_session
from rekappa.storage.location import Location
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VARIANTS: dict[str, dict[str, Any]] = {
    "60 min": {"span": 60},
    "30 min": {"span": 30},
    "15 min": {"span": 15},
    "60 min, RocksDB": {"span": 60, "state_store": ROCKSDB},
    "60 min, not aligned": {"span": 60, "ahead": 4},
}
COLUMNS = {
    "impressions": ("impression_id", "account_id", "show_id", "event_ts"),
    "playbacks": ("playback_id", "impression_id", "event_ts"),
}
WINDOW = Window.parse(START, END)
READS = WINDOW.widened(after=timedelta(hours=1))


def main() -> dict[str, Any]:
    """Seconds, peak state and the ratio to the plain batch job, by variant."""
    named = os.environ.get("REKAPPA_BENCH_ORDERED")
    variants = [name.strip() for name in named.split(";")] if named else list(VARIANTS)
    plain = [_child("plain")]
    found = {}
    for name in variants:
        found[name] = _child(name)
        print(f"   {name}: {found[name]}", flush=True)
    plain.append(_child("plain"))
    rows = {name: answer["rows"] for name, answer in found.items()} | {"plain": plain[0]["rows"]}
    if len(set(rows.values())) != 1:
        raise RuntimeError(f"The contenders disagree: {rows}")
    base = statistics.mean(answer["seconds"] for answer in plain)
    return {
        "rows": ROWS,
        "plain_seconds": [round(answer["seconds"], 2) for answer in plain],
        "variants": {
            name: {**answer, "seconds": round(answer["seconds"], 2), "to_plain": round(answer["seconds"] / base, 2)}
            for name, answer in found.items()
        },
        "target": 5,
    }


def _child(name: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.ordered", name]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _contend(name: str) -> dict[str, Any]:
    loaded, home = reference_app(), bench_home()
    settings = (
        SPARK_DEFAULTS
        if name == "plain"
        else {one.key: one.value for one in process_settings(machine_memory(), os.cpu_count() or 1)}
    )
    spark = open_session(loaded.config, "backfill", home, **settings)
    make_archive(spark)
    for table in ("impressions", "playbacks"):
        spark.table(f"lake.events.{table}").limit(1).collect()
    out = "lake.events.out_ordered"
    spark.sql(f"DROP TABLE IF EXISTS {out}")
    if name == "plain":
        began = time.monotonic()
        spark.sql(JOB).writeTo(out).using("iceberg").create()
        return {"seconds": time.monotonic() - began, "rows": spark.table(out).count()}
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        slices, outcome = replay(spark, loaded, home, out, Path(folder), **VARIANTS[name])
        seconds = time.monotonic() - began
    return {
        "seconds": seconds,
        "rows": spark.table(out).count(),
        "slices": slices,
        "peak_state_rows": outcome.peak_state_rows,
        "rows_per_second": round(ROWS * 1.1 / seconds),
    }


def replay(
    spark: SparkSession,
    loaded: Any,
    home: Any,
    out: str,
    folder: Path,
    *,
    span: int,
    ahead: int = 0,
    state_store: str | None = None,
    window: Window = WINDOW,
    reads: Window = READS,
) -> tuple[int, SliceOutcome]:
    """The take-rate join over slices of `span` minutes into the table `out`: how many slices, and how it ended."""
    at = Location.local(folder)
    plan = at / "plan"
    slices = planned(loaded.config, home, list(COLUMNS), reads, timedelta(minutes=span), plan)
    if ahead:
        _unaligned(plan, ahead)
    job = load_app(loaded).jobs["plays_per_impression"]

    def write(rows: DataFrame, number: int) -> None:
        if number:
            rows.writeTo(out).append()
        else:
            rows.writeTo(out).using("iceberg").createOrReplace()

    outcome = run_slices(
        spark,
        plan,
        "bench",
        {name: archive_source(spark, name, columns) for name, columns in COLUMNS.items()},
        lambda inputs: job.results(inputs)[job.name],
        write,
        at / "checkpoint",
        hold_back=HoldBack(window, "event_ts"),
        state_store=state_store,
    )
    return len(slices), outcome


def _unaligned(path: Location, ahead: int) -> None:
    """Change the plan so that impressions are read some slices ahead of playbacks."""
    plan = load(path)
    (job,) = plan.jobs
    count = len(job.slices) + ahead
    shifted = []
    for number in range(count):
        sources = {}
        for name, late in (("impressions", 0), ("playbacks", ahead)):
            at = number - late
            if 0 <= at < len(job.slices) and name in job.slices[at].sources:
                sources[name] = job.slices[at].sources[name]
        shifted.append(replace(job.slices[min(number, len(job.slices) - 1)], number=number, sources=sources))
    save(replace(plan, jobs=(replace(job, slices=tuple(shifted)),)), path)


if __name__ == "__main__":
    print(json.dumps(_contend(sys.argv[1])))
