"""The replay source alone: all columns to a sink that does nothing, against Spark's own batch scan of the table.

At least 24 micro-batches; both run in turns in one session, after a first round that is not counted. The stream is
timed from before its query is made until its last micro-batch is committed, Spark's own start of a query included.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._reference import END, ROWS, START, bench_home, make_archive, reference_app
from benchmarks._replay import archive_source, planned
from rekappa.plan.store import PlanFile
from rekappa.replay.state import log_settings, state_settings
from rekappa.replay.stream import replay_stream
from rekappa.spark.session import open_session
from rekappa.spark.state import settings
from rekappa.storage.location import Location
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rekappa.replay.values import ArchiveSource

TABLE = "lake.events.impressions"
ROUNDS = 4


def _scan(spark: SparkSession) -> float:
    began = time.monotonic()
    spark.table(TABLE).write.format("noop").mode("overwrite").save()
    return time.monotonic() - began


def _stream(spark: SparkSession, source: ArchiveSource, plan: Location, slices: int, checkpoint: Location) -> float:
    began = time.monotonic()
    rows = replay_stream(spark, PlanFile(plan), "bench", "impressions", source)
    chosen = state_settings(rows, None, spark.sparkContext.defaultParallelism)
    with settings(spark, log_settings(chosen, checkpoint.uri) | chosen):
        query = (
            rows.writeStream.format("noop")
            .option("checkpointLocation", checkpoint.uri)
            .trigger(processingTime="0 seconds")
            .start()
        )
    committed = checkpoint / "commits" / str(slices - 1)
    while not committed.exists():
        if query.awaitTermination(0.02):  # type: ignore[arg-type]  # fractions of a second are taken
            raise RuntimeError("The query ended by itself")
    seconds = time.monotonic() - began
    query.stop()
    return seconds


def main() -> dict[str, Any]:
    loaded, home = reference_app(), bench_home()
    spark = open_session(loaded.config, "backfill", home)
    make_archive(spark)
    reads = Window.parse(START, END).widened(after=timedelta(hours=1))  # events arrive up to half a minute late
    times: dict[str, list[float]] = {"batch": [], "replay": [], "replay, one column": []}
    with tempfile.TemporaryDirectory() as folder:
        plan = Location.local(Path(folder, "plan"))
        slices = planned(loaded.config, home, ["impressions"], reads, timedelta(hours=1), plan)
        for turn in range(ROUNDS):
            times["batch"].append(_scan(spark))
            for name, columns in (("replay", ()), ("replay, one column", ("show_id",))):
                source = archive_source(spark, "impressions", columns)
                checkpoint = Location.local(Path(folder, f"checkpoint-{turn}-{len(columns)}"))
                times[name].append(_stream(spark, source, plan, len(slices), checkpoint))
            print(f"   { ({name: round(seconds[-1], 2) for name, seconds in times.items()}) }", flush=True)
    spark.stop()
    median = {name: statistics.median(seconds[1:]) for name, seconds in times.items()}
    return {
        "ratio_to_batch_scan": round(median["replay"] / median["batch"], 2),
        "rows": ROWS,
        "micro_batches": len(slices),
        "seconds": {name: round(value, 2) for name, value in median.items()},
        "rows_per_second": round(ROWS / median["replay"]),
        "target": 1.4,
    }


if __name__ == "__main__":
    print(main())
