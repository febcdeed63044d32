"""A bulk job that goes slice by slice: its rows, and from when on they may not be final."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.app import Job
from rekappa.plan.plan import JobPlan, Plan
from rekappa.plan.watermarks import Trace
from rekappa.replay.custom.batches import BATCH
from rekappa.replay.custom.bykey import ARRIVAL, MARKS, SLICE
from rekappa.replay.custom.query import in_slice_order, taken_apart, tasks_for, watermarks
from rekappa.replay.scan import SliceScan
from rekappa.replay.stream import narrowed, widened
from rekappa.replay.values import ArchiveSource
from rekappa.spark.names import quoted
from rekappa.timeline import EPOCH

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession

_MILLISECOND = timedelta(milliseconds=1)
_EVER = timedelta(days=366)


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
    apart = taken_apart(spark, job, {name: source.schema for name, source in sources.items()})
    inputs = {}
    for name, source in sources.items():
        narrow = narrowed(source.schema, source.columns)
        scan = SliceScan(spark, source.table, narrow, plan.regions, planned.source(name).snapshot)
        rows = scan.together(((one.number, one.source(name)) for one in planned.slices), SLICE, ARRIVAL)
        inputs[name] = widened(rows, narrow, source.schema, *MARKS)
    recorded = [_millis(one.watermark) for one in planned.slices]
    settled = planned.finality.settled(planned.reads) if planned.finality is not None else None
    closing = [_millis(settled), _millis(planned.reads.end + _EVER)] if recorded[:1] in ([], [None]) else []
    marks = watermarks(spark, apart, inputs, recorded, closing)
    cores = max(spark.sparkContext.defaultParallelism, 1)
    tasks = tasks_for(sum(source.rows for source in planned.sources), cores)
    return in_slice_order(spark, apart, output, inputs, marks, tasks, late), marks


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
