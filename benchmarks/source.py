"""The replay source alone: all columns to a sink that does nothing, against Spark's own batch scan of the table.

At least 24 micro-batches; both run in turns in one session, after a first round that is not counted.
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
from rekappa.replay.ordered import run_slices
from rekappa.spark.session import open_session
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TABLE = "lake.events.impressions"
ROUNDS = 3


def _nowhere(rows: DataFrame, number: int = 0) -> None:
    rows.write.format("noop").mode("overwrite").save()


def main() -> dict[str, Any]:
    loaded, home = reference_app(), bench_home()
    spark = open_session(loaded.config, "backfill", home)
    make_archive(spark)
    reads = Window.parse(START, END).widened(after=timedelta(hours=1))  # events arrive up to half a minute late
    times: dict[str, list[float]] = {"batch": [], "replay": [], "replay, one column": []}
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder, "plan")
        slices = planned(loaded.config, home, ["impressions"], reads, timedelta(hours=1), plan)
        for turn in range(ROUNDS):
            began = time.monotonic()
            _nowhere(spark.table(TABLE))
            times["batch"].append(time.monotonic() - began)
            for name, columns in (("replay", ()), ("replay, one column", ("show_id",))):
                source = archive_source(spark, loaded.config, home, "impressions", columns)
                began = time.monotonic()
                outcome = run_slices(
                    spark, plan, "bench", {"impressions": source}, lambda inputs: inputs["impressions"], _nowhere,
                    Path(folder, f"checkpoint-{turn}-{len(columns)}"), close=False,
                )  # fmt: skip
                times[name].append(time.monotonic() - began)
                assert outcome.rows >= ROWS, outcome
    spark.stop()
    median = {name: statistics.median(seconds[1:]) for name, seconds in times.items()}
    return {
        "rows": ROWS,
        "micro_batches": len(slices),
        "seconds": {name: round(value, 2) for name, value in median.items()},
        "ratio_to_batch_scan": round(median["replay"] / median["batch"], 2),
        "rows_per_second": round(ROWS / median["replay"]),
        "target": 1.4,
    }


if __name__ == "__main__":
    print(main())
