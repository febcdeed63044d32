"""Custom state: the sessions app over a day of playbacks, in micro-batches and in bulk, by size of slice.

transformWithState needs the RocksDB state store, so there is no other to compare with; whether RocksDB counts its
rows (which costs a look-up for every write) is varied instead. In bulk one batch job drives the same code over the same
slices.
"""

from __future__ import annotations

import json
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
from rekappa.config.bind import load_app
from rekappa.config.load import load
from rekappa.plan.store import load as load_plan
from rekappa.replay.custom.batches import BATCH
from rekappa.replay.custom.run import sliced_rows
from rekappa.replay.ordered import HoldBack, run_slices
from rekappa.spark.session import open_session
from rekappa.storage.location import Location
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

APP = Path(__file__).resolve().parent.parent / "examples" / "sessions"
COUNTING = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"
VARIANTS: dict[str, tuple[int, dict[str, str]]] = {
    "15 min": (15, {}),
    "60 min": (60, {}),
    "180 min": (180, {}),
    "60 min, rows not counted": (60, {COUNTING: "false"}),
}
BULK = {f"bulk, {minutes} min": minutes for minutes in (15, 60)}
WINDOW = Window.parse(START, END)


def main() -> dict[str, Any]:
    """Rows per second and peak state of every variant."""
    found = {}
    for name in (*VARIANTS, *BULK):
        command = [sys.executable, "-m", "benchmarks.sessions", name]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found[name] = json.loads(done.stdout.splitlines()[-1])
        print(f"   {name}: {found[name]}", flush=True)
    if len({answer["events"] for answer in found.values()}) != 1:
        raise RuntimeError(f"The variants disagree: {found}")
    ratios = {
        f"{minutes} min": round(found[f"{minutes} min"]["seconds"] / found[name]["seconds"], 1)
        for name, minutes in BULK.items()
    }
    best = max(found[name]["rows_per_second"] for name in BULK)
    return {"rows": ROWS // 10, "variants": found, "ordered_to_bulk": ratios, "bulk_rows_per_second": best}


def _contend(name: str) -> dict[str, Any]:
    loaded, home = reference_app(), bench_home()
    span, settings = VARIANTS[name] if name in VARIANTS else (BULK[name], {})
    job = load_app(load(APP)).jobs["sessions"]
    spark = open_session(loaded.config, "backfill", home)
    make_archive(spark)
    out = "lake.events.out_sessions"
    spark.sql(f"DROP TABLE IF EXISTS {out}")

    def write(rows: DataFrame, number: int) -> None:
        if number:
            rows.writeTo(out).append()
        else:
            rows.writeTo(out).using("iceberg").createOrReplace()

    reads = WINDOW.widened(after=timedelta(hours=1))
    source = archive_source(spark, "playbacks", ["account_id", "event_ts"])
    with tempfile.TemporaryDirectory() as folder:
        began, at = time.monotonic(), Location.local(Path(folder))
        slices = planned(loaded.config, home, ["playbacks"], reads, timedelta(minutes=span), at / "plan")
        if name in BULK:
            plan = load_plan(at / "plan")
            renamed = replace(job, sources=("playbacks",), body=lambda playbacks: job.body(playbacks))
            rows, _ = sliced_rows(spark, {"playbacks": source}, plan, plan.jobs[0], renamed, "sessions")
            write(rows.drop(BATCH), 0)
            peak = 0
        else:
            outcome = run_slices(
                spark,
                at / "plan",
                "bench",
                {"playbacks": source},
                lambda inputs: job.body(inputs["playbacks"]),
                write,
                at / "checkpoint",
                hold_back=HoldBack(reads, "session_start"),
                settings=settings,
            )
            peak = outcome.peak_state_rows
        seconds = time.monotonic() - began
    total = spark.sql(f"SELECT sum(events) AS n FROM {out}").first()
    return {
        "seconds": round(seconds, 1),
        "rows_per_second": round(ROWS // 10 / seconds),
        "slices": len(slices),
        "peak_state_rows": peak,
        "events": int(total.n) if total else 0,
    }


if __name__ == "__main__":
    print(json.dumps(_contend(sys.argv[1])))
