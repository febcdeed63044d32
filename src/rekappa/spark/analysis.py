"""Looking at a job's query without running it: the job is called on empty streams, and Spark's plan is read.

shapes = analyse(spark, job, {"events": "id BIGINT, event_ts TIMESTAMP, …"}, {"counts": "minute"})
shapes["counts"].operators
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rekappa.app import Job
from rekappa.errors import AppError
from rekappa.plan.shape import Anchor, Operation, Shape, Span
from rekappa.record import METADATA
from rekappa.spark.outputs import require_time
from rekappa.spark.plans.custom import watching
from rekappa.spark.plans.exactness import Exactness
from rekappa.spark.plans.functions import CLOCK, OPAQUE, RANDOM
from rekappa.spark.plans.jvm import aggregate_types, watermark_delays
from rekappa.spark.plans.revisions import revisions
from rekappa.spark.plans.statics import static_names
from rekappa.spark.plans.streaming import refuse_unrunnable
from rekappa.spark.plans.times import Moment, Nested, Spread
from rekappa.spark.plans.tree import Node, parse
from rekappa.spark.plans.unlike import unlike_batch
from rekappa.spark.plans.walk import CUSTOM, Rows, Walk, is_stream
from rekappa.spark.probes import probed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def analyse(
    spark: SparkSession,
    job: Job,
    schemas: Mapping[str, str] | Mapping[str, StructType],
    outputs: Mapping[str, str | None],
    output_modes: Mapping[str, str] | None = None,
) -> dict[str, Shape]:
    """The shape of each of these outputs of a job.

    `schemas` are the record schemas of its sources, `outputs` the event-time column that each output's sink
    declares (None: it declares none), `output_modes` how each output is written, "append" unless told otherwise.
    Refuses with `AppError` what Spark would refuse to run as a stream.
    """
    with watching() as clock, probed(spark, job, schemas) as (results, paths):
        shapes = {}
        for name, event_time in outputs.items():
            mode = (output_modes or {}).get(name, "append")
            found = _shape(spark, job.name, name, results[name], paths, event_time, mode)
            if found.has(Operation.CUSTOM):
                found = replace(found, clock=tuple(sorted({*found.clock, *clock})))
            shapes[name] = found
        return shapes


def _shape(
    spark: SparkSession,
    job: str,
    output: str,
    frame: DataFrame,
    paths: Mapping[str, str],
    event_time: str | None,
    output_mode: str,
) -> Shape:
    java: Any = frame._jdf
    analysed = java.queryExecution().analyzed()
    plan = parse(analysed.toJSON())
    walk = Walk(paths)
    _refuse_other_streams(job, plan, walk)
    refuse_unrunnable(spark, job, analysed, plan, output_mode)
    require_time(frame.schema, output, event_time)
    session: Any = spark._jsparkSession
    # The optimiser is called by itself: through the query it refuses plans with streaming sources.
    planned = session.sessionState().optimizer().execute(analysed)
    optimised = parse(planned.toJSON())
    rows = walk.rows(plan)
    exactness = Exactness(aggregate_types(analysed))
    tolerances = exactness.tolerances(plan, rows.attributes)
    span, anchors = _sink_time(rows, event_time)
    delays = watermark_delays(analysed)
    watermarks: dict[str, timedelta] = {}
    for node, sources in walk.watermarked.items():
        for source in sources:
            watermarks[source] = max(delays.get(node, timedelta()), watermarks.get(source, timedelta()))
    columns, metadata = _used(optimised, walk)
    return Shape(
        output=output,
        operators=(*walk.operators, *unlike_batch(planned), *exactness.operators()),
        span=span,
        delay=max(delays.values()) if delays else None,
        watermarks=watermarks,
        columns=columns,
        metadata=metadata,
        clock=_named(plan, CLOCK),
        random=_named(plan, RANDOM) + _nondeterministic(plan),
        static=static_names(analysed),
        event_time=event_time,
        made=tuple(frame.columns),
        anchors=tuple(sorted(walk.anchors | anchors)),
        tolerances=tolerances,
        revised=revisions(optimised),
    )


def _refuse_other_streams(job: str, plan: Node, walk: Walk) -> None:
    for leaf in plan.walk():
        if is_stream(leaf) and walk.source_of(leaf) is None:
            raise AppError(
                f"Cannot replay job {job!r}: it reads a stream that is none of its sources "
                f"({leaf.fields.get('sourceName') or leaf.name})",
                hint="Declare it as a source in rekappa.yaml and take it as a parameter.",
            )


def _sink_time(rows: Rows, event_time: str | None) -> tuple[Span | None, frozenset[Anchor]]:
    """What is behind the sink's event time, and the columns that it is read or computed from."""
    if event_time is None:
        return None, frozenset()
    head, *rest = event_time.lower().split(".")
    for attribute in rows.attributes:
        if str(attribute.fields.get("name", "")).lower() != head or attribute.id is None:
            continue
        found = rows.times.get(attribute.id)
        for part in rest:
            if isinstance(found, Nested):
                names = [str(one["name"]).lower() for one in found.fields]
                found = found.inner(names.index(part)) if part in names else None
            elif isinstance(found, Spread):
                found = found.end if part == "end" else found.start
        if isinstance(found, Spread):
            found = found.start
        if isinstance(found, Moment):
            return (found.span if found.span.known else None), found.span.anchors
        return None, rows.origins.get(attribute.id, frozenset())
    return None, frozenset()


def _named(plan: Node, names: Mapping[str, str]) -> tuple[str, ...]:
    found = {names[part.name] for node in plan.walk() for part in node.all_expressions() if part.name in names}
    return tuple(sorted(found))


def _nondeterministic(plan: Node) -> tuple[str, ...]:
    found = set()
    for node in plan.walk():
        if node.name == "Sample":
            found.add("sample()")
        for part in node.all_expressions():
            if "udfDeterministic" in part.fields and not part.fields["udfDeterministic"]:
                found.add(f"{part.fields.get('name') or 'udf'}() (marked nondeterministic)")
    return tuple(sorted(found))


def _used(plan: Node, walk: Walk) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """The columns of each source that the optimised plan refers to, and the fields of `__metadata__` likewise."""
    leaves = [node for node in plan.walk() if node.name.startswith("StreamingRelation")]
    quiet = Walk(walk.sources)
    referred: set[int] = quiet.rows(plan).ids
    whole = set(referred)
    fields: dict[int, set[str]] = {}
    for node in plan.walk():
        if node in leaves:
            continue
        if node.name in OPAQUE or node.name in CUSTOM:
            referred |= quiet.rows(node.children[0]).ids
            whole |= quiet.rows(node.children[0]).ids
        for name, group in node.expressions.items():
            for expression in group:
                passed_on = name == "projectList" and expression.name == "AttributeReference"
                parts = list(expression.walk())
                referred |= {part.id for part in parts if part.name == "AttributeReference" and part.id is not None}
                inside = {id(part.children[0]) for part in parts if part.name == "GetStructField"}
                for part in parts:
                    if part.name == "GetStructField" and part.children[0].id is not None:
                        fields.setdefault(part.children[0].id, set()).add(str(part.fields.get("name")))
                    elif part.name == "AttributeReference" and id(part) not in inside and not passed_on:
                        whole.add(-1 if part.id is None else part.id)
    columns: dict[str, list[str]] = {}
    metadata: dict[str, set[str]] = {}
    for leaf in leaves:
        source = walk.source_of(leaf) or ""
        kept = columns.setdefault(source, [])
        for attribute in leaf.of("output"):
            name, key = str(attribute.fields["name"]), attribute.id
            if key not in referred or key is None:
                continue
            if name not in kept:
                kept.append(name)
            if name == METADATA:
                known = [one["name"] for one in attribute.fields["dataType"]["fields"]]
                metadata.setdefault(source, set()).update(known if key in whole else fields.get(key, known))
    return (
        {source: tuple(names) for source, names in columns.items()},
        {source: tuple(sorted(names)) for source, names in metadata.items()},
    )
