"""The replay source alone: all columns to a sink that does nothing, against Spark's own vectorised Parquet reader.

Both read the same files, in turns, in one session, after a first round that is not counted. Planning is a part of
both: the reader's begins with the list of files, the replay's with the table's metadata. The stream is timed until its
last micro-batch is committed, Spark's own start of a query included. Slices of an hour are whole files; slices of
15 minutes cut every file into four.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
    from pyspark.sql.types import StructType

    from rekappa.config.load import Loaded
    from rekappa.home import Home
    from rekappa.replay.values import ArchiveSource

TABLE = "lake.events.impressions"
ROUNDS = int(os.environ.get("REKAPPA_BENCH_ROUNDS", "3")) + 1
VARIANTS: dict[str, tuple[int, tuple[str, ...]]] = {
    "replay, 60 min": (60, ()),
    "replay, 15 min": (15, ()),
    "replay, 60 min, one column": (60, ("show_id",)),
}


class _Replayed(NamedTuple):
    seconds: float
    slices: int


def _scan(spark: SparkSession, files: list[str], schema: StructType) -> float:
    began = time.monotonic()
    spark.read.schema(schema).parquet(*files).write.format("noop").mode("overwrite").save()
    return time.monotonic() - began


def _replayed(spark: SparkSession, loaded: Loaded, home: Home, folder: Path, span: int, *columns: str) -> _Replayed:
    """Plan slices of `span` minutes and read them."""
    folder.mkdir()
    reads = Window.parse(START, END).widened(after=timedelta(hours=1))  # events arrive up to half a minute late
    plan, began = Location.local(folder / "plan"), time.monotonic()
    slices = planned(loaded.config, home, ["impressions"], reads, timedelta(minutes=span), plan)
    source = archive_source(spark, "impressions", columns)
    _stream(spark, source, plan, len(slices), Location.local(folder / "checkpoint"))
    return _Replayed(time.monotonic() - began, len(slices))


def _stream(spark: SparkSession, source: ArchiveSource, plan: Location, slices: int, checkpoint: Location) -> None:
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
    query.stop()


def main() -> dict[str, Any]:
    loaded, home = reference_app(), bench_home()
    spark = open_session(loaded.config, "backfill", home)
    make_archive(spark)
    files = [row.file_path for row in spark.table(f"{TABLE}.files").select("file_path").collect()]
    schema = spark.table(TABLE).schema
    times: dict[str, list[float]] = {name: [] for name in ("parquet", *VARIANTS)}
    slices: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(ROUNDS):
            times["parquet"].append(_scan(spark, files, schema))
            for number, (name, (span, columns)) in enumerate(VARIANTS.items()):
                done = _replayed(spark, loaded, home, Path(folder, f"{turn}-{number}"), span, *columns)
                times[name].append(done.seconds)
                slices[name] = done.slices
            print(f"   { ({name: round(seconds[-1], 2) for name, seconds in times.items()}) }", flush=True)
    spark.stop()
    median = {name: statistics.median(seconds[1:]) for name, seconds in times.items()}
    return {
        "rows": ROWS,
        "files": len(files),
        "slices": slices,
        "seconds": {name: round(value, 2) for name, value in median.items()},
        "whole_to_parquet": round(median["replay, 60 min"] / median["parquet"], 2),
        "cut_to_parquet": round(median["replay, 15 min"] / median["parquet"], 2),
        "rows_per_second": round(ROWS / median["replay, 60 min"]),
    }


if __name__ == "__main__":
    print(main())
