"""A bulk job that goes slice by slice: its rows, and from when on they may not be final."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from rekappa.app import Job
from rekappa.plan.model import Slice
from rekappa.plan.plan import JobPlan, Plan
from rekappa.plan.watermarks import Trace
from rekappa.replay.custom.batches import BATCH
from rekappa.replay.custom.bykey import ARRIVAL, MARKS, SLICE
from rekappa.replay.custom.query import Apart, alive, in_slice_order, taken_apart, tasks_for, watermarks
from rekappa.replay.scan import SliceScan
from rekappa.replay.stream import narrowed, widened
from rekappa.replay.values import ArchiveSource
from rekappa.spark.names import quoted
from rekappa.timeline import EPOCH

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession

_MILLISECOND = timedelta(milliseconds=1)
_EVER = timedelta(days=366)


@dataclass(frozen=True, slots=True)
class Stretched:
    """Slices to read, of which regions, and the version of each source's table."""

    slices: tuple[Slice, ...]
    regions: tuple[str, ...]
    snapshots: Mapping[str, int | None]


def sliced_rows(
    spark: SparkSession,
    sources: Mapping[str, ArchiveSource],
    plan: Plan,
    planned: JobPlan,
    job: Job,
    output: str,
    *,
    late: Observation | None = None,
) -> tuple[DataFrame, Trace]:
    """The rows of one output over the planned slices, with `BATCH`, and the watermarks they were made with.

    Two batches without rows follow the slices, as in ordered mode: one to where all is settled, one past everything. No
    such follow production's own micro-batches. `late` will know how many rows were dropped as late, if any can be.
    """
    snapshots = {source.name: source.snapshot for source in planned.sources}
    query = _opened(spark, sources, Stretched(planned.slices, plan.regions, snapshots), job)
    recorded = [_millis(one.watermark) for one in planned.slices]
    settled = planned.finality.settled(planned.reads) if planned.finality is not None else None
    closing = [_millis(settled), _millis(planned.reads.end + _EVER)] if recorded[:1] in ([], [None]) else []
    marks = watermarks(spark, query.apart, query.inputs, recorded, closing)
    return in_slice_order(spark, query.apart, output, query.inputs, marks, query.tasks, late), marks


def state_alive(spark: SparkSession, sources: Mapping[str, ArchiveSource], stretch: Stretched, job: Job) -> Alive:
    """What state is alive once these slices, and nothing but them, have been read."""
    from pyspark.sql import functions as F

    query = _opened(spark, sources, stretch, job)
    marks = watermarks(spark, query.apart, query.inputs, [None] * len(stretch.slices), [])
    found = alive(spark, query.apart, query.inputs, marks, query.tasks)
    # Added up as a decimal: a sum of hashes would run over.
    digest = F.sum(F.xxhash64(*found.columns).cast("decimal(38, 0)"))
    row = found.agg(
        F.count(F.lit(1)).alias("keys"),
        digest.alias("digest"),
        F.count_if(F.col("due").isNull()).alias("endless"),
        F.max("due").alias("due"),
    ).first()
    if row is None:
        return Alive(0, None)
    return Alive(row.keys, row.digest, row.endless, None if row.due is None else EPOCH + row.due * _MILLISECOND)


@dataclass(frozen=True, slots=True)
class Alive:
    """How many keys hold state, and a digest of what they hold: equal digests, equal state.

    `endless` of them wait for no timer: only an event can end what they hold. `due` is the last of the others' timers.
    """

    keys: int
    digest: Decimal | None
    endless: int = 0
    due: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Opened:
    apart: Apart
    inputs: Mapping[str, DataFrame]
    tasks: int


def _opened(spark: SparkSession, sources: Mapping[str, ArchiveSource], stretch: Stretched, job: Job) -> _Opened:
    apart = taken_apart(spark, job, {name: source.schema for name, source in sources.items()})
    inputs = {}
    for name, source in sources.items():
        narrow = narrowed(source.schema, source.columns)
        scan = SliceScan(spark, source.table, narrow, stretch.regions, stretch.snapshots[name], source.fence)
        rows = scan.together(((one.number, one.source(name)) for one in stretch.slices), SLICE, ARRIVAL)
        inputs[name] = widened(rows, narrow, source.schema, *MARKS)
    cores = max(spark.sparkContext.defaultParallelism, 1)
    return _Opened(apart, inputs, tasks_for(sum(one.rows for one in stretch.slices), cores))


def may_change(rows: DataFrame, planned: JobPlan, event_time: str, marks: Trace) -> Column:
    """The sink's time of rows that may not be final: only the end of the replay brought them out; null for others."""
    from pyspark.sql import functions as F

    moment = F.col(quoted(event_time))
    doubtful = F.lit(True)
    if BATCH in rows.columns:
        doubtful = F.col(BATCH) == F.lit(len(marks.marks) - 1 if marks.closing else -1)
    sure = planned.finality.final_until(planned.reads) if planned.finality is not None else None
    if sure is not None:
        doubtful = doubtful & (moment >= F.lit(sure))
    return F.when(doubtful, F.unix_micros(moment.cast("timestamp")))


def _millis(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - EPOCH) // _MILLISECOND
