"""The replay source alone: all columns to a sink that does nothing, against Spark's own vectorised Parquet reader.

Both read the same files, in turns, in one session, after a first round that is not counted. Planning is a part of
both: the reader's begins with the list of files, the replay's with the table's metadata. The stream is timed until its
last micro-batch is committed, Spark's own start of a query included. Slices of an hour are whole files; slices of
15 minutes cut every file into four. What of their time is the cut, and what Spark's micro-batches cost whatever they
read, is told by two more: the same slices of a table whose files end at the quarters, and Spark's own file stream over
those files in as many micro-batches. The same rows within six hours stand for a topic with four times the traffic,
of which every micro-batch has four times as much to read.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks._reference import (
    END,
    ROWS,
    START,
    TABLES,
    bench_home,
    create_archive,
    make_archive,
    reference_app,
)  # fmt: skip
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
QUARTERS = "impressions_by_quarter"
BUSY = "impressions_of_six_hours"
VARIANTS: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "replay, 60 min": ("impressions", 60, ()),
    "replay, 15 min": ("impressions", 15, ()),
    "replay, 15 min, files that end there": (QUARTERS, 15, ()),
    "replay, 60 min, one column": ("impressions", 60, ("show_id",)),
    "replay, 15 min, four times the traffic": (BUSY, 15, ()),
}
PARQUET, PARQUET_BUSY = "parquet", "parquet, four times the traffic"
OWN_STREAM = "Spark's file stream, 15 min"


class _Replayed(NamedTuple):
    seconds: float
    slices: int


def _scan(spark: SparkSession, files: list[str], schema: StructType) -> float:
    began = time.monotonic()
    spark.read.schema(schema).parquet(*files).write.format("noop").mode("overwrite").save()
    return time.monotonic() - began


def _make_quarters(spark: SparkSession) -> None:
    """The same rows in files that end at the quarters of an hour, unless they are there."""
    table = f"lake.events.{QUARTERS}"
    if spark.catalog.tableExists(table):
        return
    create_archive(spark, QUARTERS, TABLES["impressions"])
    for quarter in range(4):
        of = f"minute(__metadata__.kafka_ingestion_ts) DIV 15 = {quarter}"
        spark.table(TABLE).where(of).writeTo(table).append()


def _make_busy(spark: SparkSession) -> None:
    """The same rows, four times as many an hour, unless they are there."""
    table = f"lake.events.{BUSY}"
    if spark.catalog.tableExists(table):
        return
    create_archive(spark, BUSY, TABLES["impressions"])
    began = f"unix_micros(TIMESTAMP '{START}')"
    at = f"timestamp_micros({began} + (unix_micros(__metadata__.kafka_ingestion_ts) - {began}) DIV 4)"
    rows = spark.table(TABLE).selectExpr(
        "* EXCEPT (__metadata__)",
        f"struct(__metadata__.* EXCEPT (kafka_ingestion_ts), {at} AS kafka_ingestion_ts) AS __metadata__",
    )
    rows.sortWithinPartitions("__metadata__.kafka_ingestion_ts").writeTo(table).append()


def _files(spark: SparkSession, table: str) -> list[str]:
    return [row.file_path for row in spark.table(f"{table}.files").select("file_path").collect()]


def _own_stream(spark: SparkSession, folder: Path, schema: StructType, files: list[str], batches: int) -> float:
    """Spark's file stream over the files, in so many micro-batches, into a sink that does nothing."""
    began = time.monotonic()
    each = -(-len(files) // batches)
    rows = (
        spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", each)
        .option("recursiveFileLookup", "true")
        .parquet(files[0].partition("/__metadata__")[0])
    )
    query = rows.writeStream.format("noop").option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    query.awaitTermination()
    return time.monotonic() - began


def _replayed(
    spark: SparkSession, loaded: Loaded, home: Home, folder: Path, name: str, span: int, columns: tuple[str, ...]
) -> _Replayed:
    """Plan slices of `span` minutes of this archive table and read them."""
    folder.mkdir()
    reads = Window.parse(START, END).widened(after=timedelta(hours=1))  # events arrive up to half a minute late
    plan, began = Location.local(folder / "plan"), time.monotonic()
    slices = planned(loaded.config, home, [name], reads, timedelta(minutes=span), plan)
    source = archive_source(spark, name, columns)
    _stream(spark, name, source, plan, len(slices), Location.local(folder / "checkpoint"))
    return _Replayed(time.monotonic() - began, len(slices))


def _stream(
    spark: SparkSession, name: str, source: ArchiveSource, plan: Location, slices: int, checkpoint: Location
) -> None:
    rows = replay_stream(spark, PlanFile(plan), "bench", name, source)
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
    _make_quarters(spark)
    _make_busy(spark)
    files, ending, busy = (_files(spark, f"lake.events.{name}") for name in ("impressions", QUARTERS, BUSY))
    schema = spark.table(TABLE).schema
    times: dict[str, list[float]] = {name: [] for name in (PARQUET, *VARIANTS, OWN_STREAM, PARQUET_BUSY)}
    slices: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(ROUNDS):
            times[PARQUET].append(_scan(spark, files, schema))
            times[PARQUET_BUSY].append(_scan(spark, busy, schema))
            for number, (name, asked) in enumerate(VARIANTS.items()):
                done = _replayed(spark, loaded, home, Path(folder, f"{turn}-{number}"), *asked)
                times[name].append(done.seconds)
                slices[name] = done.slices
            batches = slices["replay, 15 min"]
            times[OWN_STREAM].append(_own_stream(spark, Path(folder, f"{turn}-own"), schema, ending, batches))
            print(f"   { ({name: round(seconds[-1], 2) for name, seconds in times.items()}) }", flush=True)
    spark.stop()
    median = {name: statistics.median(seconds[1:]) for name, seconds in times.items()}
    whole, cut, ends = (
        median[name] for name in ("replay, 60 min", "replay, 15 min", "replay, 15 min, files that end there")
    )
    return {
        "rows": ROWS,
        "files": len(files),
        "slices": slices,
        "seconds": {name: round(value, 2) for name, value in median.items()},
        "whole_to_parquet": round(whole / median[PARQUET], 2),
        "cut_to_parquet": round(cut / median[PARQUET], 2),
        "cut_to_uncut": round(cut / ends, 2),
        "cut_to_own_stream": round(cut / median[OWN_STREAM], 2),
        "own_stream_to_parquet": round(median[OWN_STREAM] / median[PARQUET], 2),
        "busy_to_parquet": round(median["replay, 15 min, four times the traffic"] / median[PARQUET_BUSY], 2),
        "rows_per_second": round(ROWS / whole),
    }


if __name__ == "__main__":
    print(main())
