"""Custom state: the sessions app over playbacks, in micro-batches and in bulk, by size of slice.

In bulk one batch job drives the same code over the same slices, a whole day of them. In micro-batches, through Spark's
state store, a day takes half an hour: they run over its first hours only, and events per second are compared. What the
user's own code takes of the time in bulk is what is saved by one that does nothing in its place.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StatefulProcessor

from benchmarks._reference import END, ROWS, START, bench_home, make_archive, reference_app
from benchmarks._replay import archive_source, planned
from rekappa.config.bind import load_app
from rekappa.config.load import load
from rekappa.plan.store import load as load_plan
from rekappa.replay.bulk import through_python
from rekappa.replay.custom.batches import BATCH
from rekappa.replay.custom.run import sliced_rows
from rekappa.replay.ordered import HoldBack, run_slices
from rekappa.spark.session import open_session
from rekappa.spark.state import settings
from rekappa.storage.location import Location
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

APP = Path(__file__).resolve().parent.parent / "examples" / "sessions"
HOURS = 2
"""How much of the day the micro-batches run over."""
ORDERED = {f"ordered, {minutes} min": minutes for minutes in (15, 60)}
BULK = {f"bulk, {minutes} min": minutes for minutes in (15, 60)}
IDLE = "bulk, 15 min, code that does nothing"
WINDOW = Window.parse(START, END)


class Idle(StatefulProcessor):
    """Takes everything and does nothing."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        return iter(())

    def close(self) -> None:
        pass


def main() -> dict[str, Any]:
    """Events per second of every variant."""
    found = {}
    for name in (*ORDERED, *BULK, IDLE):
        command = [sys.executable, "-m", "benchmarks.sessions", name]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found[name] = json.loads(done.stdout.splitlines()[-1])
        print(f"   {name}: {found[name]}", flush=True)
    for some in (ORDERED, BULK):
        if len({found[name]["events"] for name in some}) != 1:
            raise RuntimeError(f"The variants disagree: {found}")
    speed = {name: answer["events_per_second"] for name, answer in found.items()}
    ratios = {
        f"{minutes} min": round(speed[f"bulk, {minutes} min"] / speed[f"ordered, {minutes} min"], 1)
        for minutes in BULK.values()
    }
    best = max(speed[name] for name in BULK)
    own = 1 - found[IDLE]["seconds"] / found["bulk, 15 min"]["seconds"]
    return {
        "rows": ROWS // 10,
        "variants": found,
        "bulk_to_ordered": ratios,
        "bulk_to_ordered_15_min": ratios["15 min"],
        "bulk_events_per_second": best,
        "share_of_own_code": round(own, 2),
    }


def _contend(name: str) -> dict[str, Any]:
    loaded, home = reference_app(), bench_home()
    span = {**ORDERED, **BULK, IDLE: 15}[name]
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

    window = Window(WINDOW.start, WINDOW.start + timedelta(hours=HOURS)) if name in ORDERED else WINDOW
    reads = window if name in ORDERED else window.widened(after=timedelta(hours=1))
    source = archive_source(spark, "playbacks", ["account_id", "event_ts"])
    with tempfile.TemporaryDirectory() as folder:
        began, at = time.monotonic(), Location.local(Path(folder))
        slices = planned(loaded.config, home, ["playbacks"], reads, timedelta(minutes=span), at / "plan")
        if name not in ORDERED:
            plan = load_plan(at / "plan")
            body = _idle if name == IDLE else job.body
            renamed = replace(job, sources=("playbacks",), body=lambda playbacks: body(playbacks))
            with settings(spark, {one.key: one.value for one in through_python(plan.jobs[0])}):
                rows, _ = sliced_rows(spark, {"playbacks": source}, plan, plan.jobs[0], renamed, "sessions")
                write(rows.drop(BATCH), 0)
        else:
            run_slices(
                spark,
                at / "plan",
                "bench",
                {"playbacks": source},
                lambda inputs: job.body(inputs["playbacks"]),
                write,
                at / "checkpoint",
                hold_back=HoldBack(reads, "session_start"),
            )
        seconds = time.monotonic() - began
    total = spark.sql(f"SELECT sum(events) AS n FROM {out}").first()
    read = sum(one.rows for one in slices)
    return {
        "seconds": round(seconds, 1),
        "events_per_second": round(read / seconds),
        "slices": len(slices),
        "events": int(total.n or 0) if total else 0,
    }


def _idle(playbacks: DataFrame) -> DataFrame:
    return (
        playbacks.withWatermark("event_ts", "10 minutes")
        .groupBy("account_id")
        .transformWithState(
            statefulProcessor=Idle(), outputStructType="events BIGINT", outputMode="Append", timeMode="EventTime"
        )
    )


if __name__ == "__main__":
    print(json.dumps(_contend(sys.argv[1])))
