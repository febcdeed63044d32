"""A job with one stateful operator as one batch query over slices.

    found = taken_apart(spark, job, schemas)          # the job is called once, on stand-ins for its sources
    trace = watermarks(spark, found, inputs, …)       # one aggregation: the watermark of every slice
    rows = in_slice_order(spark, found, output, inputs, trace)

`inputs` are the rows of each source with two columns more, the slice that a row is read in and its place there. The
steps before the operator pass them on unseen; then rows are brought together by key, sorted by slice and place, and
handed to the operator's own code key by key. The steps after it go on from there, and pass on in which batch a row
came out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from rekappa.app import Job
from rekappa.errors import RunError
from rekappa.plan.watermarks import Policy, Trace, trace
from rekappa.replay.custom.batches import BATCH
from rekappa.replay.custom.bykey import ARRIVAL, DELAY, MARKS, SLICE, by_key, micros_of
from rekappa.replay.custom.capture import PLAIN_DEDUP, StateCall, capturing
from rekappa.spark.calling import results_of
from rekappa.spark.plans.jvm import each, nodes, simple_name, watermark_delays
from rekappa.spark.private import analysed, frame_of, leaf_id, optimised, stream_leaf, with_leaves

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession
    from pyspark.sql.types import StructType

_MILLISECOND = timedelta(milliseconds=1)
_ROWS_EACH = 250_000
"""Rows that one task is to drive."""


@dataclass(frozen=True)
class Apart:
    """A job's stateful operator, the results that are made from it, and the leaves that stand for its sources."""

    asked: StateCall
    results: Mapping[str, DataFrame]
    leaves: Mapping[str, DataFrame]
    timeless: frozenset[str] = frozenset()
    """The results for which Spark takes the event time out below the operator, because nothing above uses it: then no
    row is late."""


def taken_apart(spark: SparkSession, job: Job, schemas: Mapping[str, StructType]) -> Apart:
    """The job, called once on stand-ins for its sources; `schemas` are their record schemas."""
    leaves = {name: stream_leaf(spark, schema) for name, schema in schemas.items()}
    with capturing(spark) as captured:
        results = results_of(job, leaves)
    if len(captured) != 1:
        raise RunError(
            f"Cannot run job {job.name!r} in slice order: it has {len(captured)} stateful operators, not one",
            hint="Use --mode ordered.",
        )
    if any(simple_name(node) == "EventTimeWatermark" for one in results.values() for node in nodes(analysed(one))):
        raise RunError(
            f"Cannot run job {job.name!r} in slice order: it sets a watermark after its stateful operator, which holds "
            "back that operator's own",
            hint="Use --mode ordered.",
        )
    timeless = _timeless(spark, job, leaves) if captured[0].method in PLAIN_DEDUP else frozenset()
    return Apart(captured[0], results, leaves, timeless)


def _timeless(spark: SparkSession, job: Job, leaves: Mapping[str, DataFrame]) -> frozenset[str]:
    """The results of which a de-duplication is not given the event time, as Spark's optimiser leaves their plans."""
    found = set()
    for name, result in results_of(job, leaves).items():
        for node in nodes(optimised(spark, result)):
            if simple_name(node) == "Deduplicate" and not any(
                bool(one.metadata().contains(DELAY)) for one in each(node.child().output())
            ):
                found.add(name)
    return frozenset(found)


def obstacle(spark: SparkSession, job: Job, schemas: Mapping[str, StructType]) -> str:
    """Why the job can't go slice by slice, in words to follow "here"; none if it can. Runs nothing."""
    from pyspark.sql.types import IntegerType, LongType, StructField, StructType

    try:
        apart = taken_apart(spark, job, schemas)
        marks = [StructField(SLICE, IntegerType()), StructField(ARRIVAL, LongType())]
        empty = {
            name: spark.createDataFrame([], StructType([*schema.fields, *marks])) for name, schema in schemas.items()
        }
        by_key(spark, apart.asked, _rows(apart, empty), Trace((0,)), 1)
    except RunError as error:
        return error.message.partition(": ")[2] or error.message
    return ""


def watermarks(
    spark: SparkSession,
    apart: Apart,
    inputs: Mapping[str, DataFrame],
    recorded: Sequence[int | None],
    closing: Sequence[int | None],
) -> Trace:
    """The watermark of every slice (there are as many as `recorded` has entries) and of the closing batches.

    Looks at the plan as Spark's optimiser leaves it, as a stream does: a filter that stands after the watermark in the
    job may be applied before it.
    """
    from pyspark.sql import functions as F

    plan = optimised(spark, apart.asked.frame)
    delays = {node: delay // _MILLISECOND for node, delay in watermark_delays(plan).items()}
    found: list[dict[str, int]] = [{} for _ in recorded]
    parts: list[DataFrame] = []
    for node in nodes(plan) if None in recorded else ():
        if simple_name(node) != "EventTimeWatermark":
            continue
        below = with_leaves(spark, node.child(), _rows(apart, inputs), MARKS)
        ids = [int(one.exprId().id()) for one in each(below.output())]
        names = [str(one.name()) for one in each(below.output())]
        at = ids.index(int(node.eventTime().exprId().id()))
        frame = frame_of(spark, below).toDF(*(f"c{number}" for number in range(len(names))))
        highest = F.max(F.coalesce(micros_of(frame, f"c{at}"), F.lit(0)))
        number = F.col(f"c{names.index(SLICE)}").alias("slice")
        parts.append(frame.groupBy(number).agg(highest.alias("t")).withColumn("node", F.lit(node.nodeId().toString())))
    for part in parts:
        for row in part.collect():
            # Of one watermark that is used several times the highest event time of all counts.
            found[row.slice][row.node] = max(row.t // 1000, found[row.slice].get(row.node, 0))
    policy = Policy(spark.conf.get("spark.sql.streaming.multipleWatermarkPolicy", "min") or "min")
    made = trace(found, delays, recorded=recorded, closing=closing, policy=policy)
    if not made.rising:
        raise RunError("Cannot run in slice order: the recorded watermarks fall", hint="Use --mode exact.")
    several = spark.conf.get("spark.sql.streaming.statefulOperator.allowMultiple", "true") or "true"
    return replace(made, late_at_once=several.lower() == "false")


def in_slice_order(
    spark: SparkSession,
    apart: Apart,
    output: str,
    inputs: Mapping[str, DataFrame],
    marks: Trace,
    tasks: int,
    late: Observation | None = None,
) -> DataFrame:
    """The rows of one output; the column `BATCH` says in which batch each came out, unless a step after hides that.
    `late` will know how many rows were dropped as late."""
    drops_late = output not in apart.timeless
    driven = by_key(spark, apart.asked, _rows(apart, inputs), marks, tasks, late, drops_late=drops_late)
    own = leaf_id(apart.asked.result)
    plan = with_leaves(spark, analysed(apart.results[output]), lambda leaf: driven if leaf == own else None, (BATCH,))
    return frame_of(spark, plan)


def alive(spark: SparkSession, apart: Apart, inputs: Mapping[str, DataFrame], marks: Trace, tasks: int) -> DataFrame:
    """Which keys hold state after the last slice, with a digest of it."""
    return by_key(spark, apart.asked, _rows(apart, inputs), marks, tasks, alive=True)


def tasks_for(rows: int, cores: int) -> int:
    """In how many tasks keys are driven: as many rounds of all cores as it takes, so that none waits for the last."""
    return cores * max(2, -(-rows // (_ROWS_EACH * cores)))


def _rows(apart: Apart, inputs: Mapping[str, DataFrame]) -> Callable[[int], DataFrame | None]:
    by_leaf = {leaf_id(leaf): name for name, leaf in apart.leaves.items()}
    return lambda leaf: inputs[by_leaf[leaf]] if leaf in by_leaf else None
