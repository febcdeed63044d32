"""What the replay benchmarks share: a plan of the reference archive, saved and ready to run, and the join over it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rekappa.config.bind import load_app
from rekappa.config.model import AppConfig
from rekappa.home import Home
from rekappa.iceberg.catalog import load_table
from rekappa.iceberg.splits import table_splits
from rekappa.plan.model import Slice, Split
from rekappa.plan.ordered import plan_slices
from rekappa.plan.plan import JobPlan, Mode, Plan, SourcePlan
from rekappa.plan.store import save
from rekappa.replay.ordered import ArchiveSource, HoldBack, SliceOutcome, run_slices
from rekappa.storage.location import Location
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {
    "impressions": ("impression_id", "account_id", "show_id", "event_ts"),
    "playbacks": ("playback_id", "impression_id", "event_ts"),
}


def planned(
    config: AppConfig, home: Home, sources: Sequence[str], reads: Window, span: timedelta, path: Location
) -> tuple[Slice, ...]:
    """Plan slices of `span` over the sources' archive tables and save them as the plan of the job `bench`."""
    zero = timedelta()
    parts: list[SourcePlan] = []
    splits: list[Split] = []
    for name in sources:
        table = f"lake.events.{name}"
        scan = table_splits(load_table(config, table, home), name, reads, max_misalignment=span)
        parts.append(SourcePlan(name, table, scan.snapshot, (), span, scan.files, scan.rows, scan.bytes))
        splits += scan.splits
    slices = plan_slices(splits, max_misalignment=span, reads=reads)
    job = JobPlan("bench", ("out",), Mode.ORDERED, "", zero, "", zero, "", reads, tuple(parts), slices)
    save(Plan("bench", reads, (), (job,)), path)
    return slices


def archive_source(spark: SparkSession, name: str, columns: Sequence[str] = ()) -> ArchiveSource:
    table = f"lake.events.{name}"
    return ArchiveSource(table, spark.table(table).schema, columns)


def replay(
    spark: SparkSession, loaded: Any, home: Home, out: str, folder: Path, *, span: int, reads: Window
) -> SliceOutcome:
    """The take-rate join over slices of `span` minutes into the table `out`: how it ended."""
    at = Location.local(folder)
    plan = at / "plan"
    planned(loaded.config, home, list(COLUMNS), reads, timedelta(minutes=span), plan)
    job = load_app(loaded).jobs["plays_per_impression"]

    def write(rows: DataFrame, number: int) -> None:
        if number:
            rows.writeTo(out).append()
        else:
            rows.writeTo(out).using("iceberg").createOrReplace()

    return run_slices(
        spark,
        plan,
        "bench",
        {name: archive_source(spark, name, columns) for name, columns in COLUMNS.items()},
        lambda inputs: job.results(inputs)[job.name],
        write,
        at / "checkpoint",
        hold_back=HoldBack(reads, "event_ts"),
    )
