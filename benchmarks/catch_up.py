"""Catching up from the archive against a strict backfill of the same slices: the take-rate join of a day.

Both read the archive in the order of every Kafka partition, micro-batch by micro-batch, keep the join's state, and
write the same kind of Iceberg table. The catch-up does it as a live run has to: through a source that logs Kafka's own
offsets, one for every topic and region, with all columns, live's state store and Spark's own log files. They run in
turns in one session, after a first round that is not counted; planning is not part of either.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._reference import ROWS, bench_home, make_archive, reference_app
from benchmarks._replay import COLUMNS, archive_source
from rekappa.app import Job
from rekappa.config.bind import load_app
from rekappa.iceberg.catalog import load_table
from rekappa.iceberg.splits import table_splits
from rekappa.plan.catch_up import ALWAYS, Holdings, aligned_ends
from rekappa.plan.model import Split
from rekappa.plan.offsets import CutPoint, strict_slices
from rekappa.plan.ordered import MAX_ROWS
from rekappa.plan.plan import JobPlan, Mode, Plan, SourcePlan
from rekappa.plan.store import save
from rekappa.replay.catch_up import ArchivedFeeds
from rekappa.replay.ordered import run_slices
from rekappa.replay.positions import cut_points
from rekappa.replay.tuning import machine_memory, process_settings
from rekappa.runs.catch_up import NO_DATA
from rekappa.spark.private import IN_MEMORY
from rekappa.spark.session import open_session
from rekappa.spark.state import PROVIDER, settings
from rekappa.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPAN = timedelta(minutes=int(os.environ.get("REKAPPA_BENCH_SPAN", "60")))
ROUNDS = int(os.environ.get("REKAPPA_BENCH_ROUNDS", "2"))
OUT = "lake.events.out_catch_up"
Write = Callable[["DataFrame", int], None]


@dataclass(frozen=True)
class Archived:
    """What both are given: the archive's files and offsets, and the job."""

    parts: tuple[SourcePlan, ...]
    splits: Sequence[Split]
    points: Sequence[CutPoint]
    job: Job


def main() -> dict[str, Any]:
    """Seconds of both, round by round, and the ratio of their medians."""
    loaded, home = reference_app(), bench_home()
    chosen = {one.key: one.value for one in process_settings(machine_memory(), os.cpu_count() or 1)}
    spark = open_session(loaded.config, "live", home, **chosen)
    make_archive(spark)
    parts: list[SourcePlan] = []
    splits: list[Split] = []
    points: list[CutPoint] = []
    for name in COLUMNS:
        table = load_table(loaded.config, f"lake.events.{name}", home)
        scan = table_splits(table, name, ALWAYS, max_misalignment=ALWAYS.length)
        parts.append(
            SourcePlan(name, f"lake.events.{name}", scan.snapshot, (), SPAN, scan.files, scan.rows, scan.bytes)
        )
        splits += scan.splits
        points += cut_points(table, scan.splits, ALWAYS)
    archived = Archived(tuple(parts), splits, points, load_app(loaded).jobs["plays_per_impression"])
    contenders = {"strict": _strict, "catch_up": _caught_up}
    found: dict[str, list[float]] = {name: [] for name in contenders}
    batches: dict[str, int] = {}
    rows: dict[str, int] = {}
    for number in range(ROUNDS + 1):
        for name, contend in contenders.items():
            with tempfile.TemporaryDirectory() as folder:
                seconds, batches[name] = contend(spark, archived, Location.local(Path(folder)))
            rows[name] = spark.table(OUT).count()
            print(f"   {name}: {seconds:.1f} s{'' if number else ', not counted'}", flush=True)
            if number:
                found[name].append(round(seconds, 2))
    spark.stop()
    if len(set(rows.values())) != 1 or len(set(batches.values())) != 1:
        raise RuntimeError(f"The contenders disagree: {rows} rows, {batches} batches")
    ratio = statistics.median(found["catch_up"]) / statistics.median(found["strict"])
    return {"rows": ROWS, "micro_batches": batches["strict"], "seconds": found, "to_strict": round(ratio, 2)}


def _strict(spark: SparkSession, given: Archived, at: Location) -> tuple[float, int]:
    slices = strict_slices(given.points, given.splits, reads=ALWAYS, max_rows=MAX_ROWS, max_span=SPAN)
    zero = timedelta()
    job = JobPlan("bench", ("out",), Mode.STRICT, "", zero, "", zero, "", ALWAYS, given.parts, slices)
    save(Plan("bench", ALWAYS, (), (job,)), at / "plan")
    sources = {name: archive_source(spark, name, columns) for name, columns in COLUMNS.items()}
    began = time.monotonic()
    run_slices(
        spark,
        at / "plan",
        "bench",
        sources,
        lambda inputs: given.job.results(inputs)[given.job.name],
        _write,
        at / "checkpoint",
        close=False,
    )
    return time.monotonic() - began, len(slices)


def _caught_up(spark: SparkSession, given: Archived, at: Location) -> tuple[float, int]:
    until: dict[Any, int] = {}
    for point in given.points:
        until[point.position] = max(point.last + 1, until.get(point.position, 0))
    starts = dict.fromkeys(until, 0)
    ends = aligned_ends(given.points, starts, until, max_rows=MAX_ROWS, max_span=SPAN)
    feeds = sorted({(one.source, one.region, one.topic) for one in until})
    archives = {name: archive_source(spark, name) for name in COLUMNS}
    began = time.monotonic()
    fed = ArchivedFeeds(spark, feeds, archives, Holdings(given.points, given.splits), starts)
    rows = fed.in_step(given.job.results(fed.inputs())[given.job.name], (), ends)
    with settings(spark, {NO_DATA: "false", PROVIDER: IN_MEMORY}):
        started = rows.writeStream.foreachBatch(_write).option("checkpointLocation", (at / "checkpoint").uri)
        query = started.trigger(availableNow=True).start()
    query.awaitTermination()
    return time.monotonic() - began, len(ends)


def _write(rows: DataFrame, number: int) -> None:
    if number:
        rows.writeTo(OUT).append()
    else:
        rows.writeTo(OUT).using("iceberg").createOrReplace()
