"""Looking at a job's query without running it: the job is called on empty streams, and Spark's plan is read.

    shapes = analyse(spark, job, {"events": "id BIGINT, event_ts TIMESTAMP, __metadata__ …"}, …)
    shapes["counts"].operators

The probes are streaming file sources on empty folders: cheap, streaming, and each known by its folder.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rekappa.app import Job
from rekappa.errors import AppError
from rekappa.plan.shape import Shape, Span
from rekappa.record import METADATA
from rekappa.spark.plans.revisions import revisions
from rekappa.spark.plans.times import Spread
from rekappa.spark.plans.tree import Node, parse
from rekappa.spark.plans.walk import CUSTOM, Rows, Walk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CLOCK = {
    "CurrentTimestamp": "current_timestamp()",
    "Now": "now()",
    "CurrentDate": "current_date()",
    "CurDateExpressionBuilder": "curdate()",
    "LocalTimestamp": "localtimestamp()",
    "CurrentTime": "current_time()",
    "CurrentBatchTimestamp": "current_timestamp()",
}
_RANDOM = {
    "Rand": "rand()",
    "Randn": "randn()",
    "Uuid": "uuid()",
    "MonotonicallyIncreasingID": "monotonically_increasing_id()",
    "SparkPartitionID": "spark_partition_id()",
    "Shuffle": "shuffle()",
    "RandStr": "randstr()",
    "Uniform": "uniform()",
}
_OPAQUE = CUSTOM | {
    "MapInPandas",
    "MapInArrow",
    "FlatMapGroupsInPandas",
    "FlatMapGroupsInArrow",
    "ScriptTransformation",
}


def analyse(
    spark: SparkSession,
    job: Job,
    schemas: Mapping[str, str],
    event_times: Mapping[str, str],
    outputs: Mapping[str, str | None],
) -> dict[str, Shape]:
    """The shape of each output of a job.

    `schemas` are the record schemas of its sources as DDL, `event_times` the sources' event-time columns,
    `outputs` the event-time column that each output's sink declares (None: it declares none).
    """
    with tempfile.TemporaryDirectory(prefix="rekappa-probe-") as folder:
        probes, paths = {}, {}
        for name in job.sources:
            path = Path(folder, name, "probe")
            path.mkdir(parents=True)
            probes[name] = spark.readStream.schema(schemas[name]).format("parquet").load(str(path))
            paths[f"{path.parent.name}/{path.name}]"] = name
        try:
            results = job.results(probes)
        except Exception as error:
            if type(error).__module__.startswith("pyspark"):
                raise AppError(f"Cannot analyse job {job.name!r}: {str(error).splitlines()[0]}") from error
            raise
        return {name: _shape(spark, name, results[name], paths, event_times, outputs.get(name)) for name in job.outputs}


def _shape(
    spark: SparkSession,
    output: str,
    frame: DataFrame,
    paths: Mapping[str, str],
    event_times: Mapping[str, str],
    event_time: str | None,
) -> Shape:
    java: Any = frame._jdf
    analysed = java.queryExecution().analyzed()
    plan = parse(analysed.toJSON())
    session: Any = spark._jsparkSession
    # The optimiser is called by itself: through the query it refuses plans with streaming sources.
    optimised = parse(session.sessionState().optimizer().execute(analysed).toJSON())
    walk = Walk(event_times, paths)
    rows = walk.rows(plan)
    delays = _delays(analysed)
    watermarks: dict[str, timedelta] = {}
    for node, source in walk.watermarked.items():
        watermarks[source] = max(delays.get(node, timedelta()), watermarks.get(source, timedelta()))
    columns, metadata = _used(optimised, walk)
    return Shape(
        output=output,
        operators=tuple(walk.operators),
        span=_span(rows, event_time),
        delay=max(delays.values()) if delays else None,
        watermarks=watermarks,
        columns=columns,
        metadata=metadata,
        clock=_named(plan, _CLOCK),
        random=_named(plan, _RANDOM) + _nondeterministic(plan),
        static=tuple(sorted(set(walk.static))),
        event_time=event_time,
        revised=revisions(optimised),
    )


def _span(rows: Rows, event_time: str | None) -> Span | None:
    if event_time is None:
        return None
    name, _, part = event_time.partition(".")
    for attribute in rows.attributes:
        if str(attribute.fields.get("name", "")).lower() != name.lower() or attribute.id is None:
            continue
        found = rows.times.get(attribute.id)
        if isinstance(found, Spread):
            return found.end if part == "end" else found.start
        if name == METADATA and part == "kafka_ingestion_ts":
            return Span()
        return found
    return None


def _delays(node: Any) -> dict[str, timedelta]:
    """Watermark delays by node: the one thing that the plan's JSON leaves out."""
    found: dict[str, timedelta] = {}
    if node.getClass().getSimpleName() == "EventTimeWatermark":
        delay = node.delay()
        months = timedelta(days=31 * _number(delay, "months"))
        found[node.nodeId().toString()] = (
            months + timedelta(days=_number(delay, "days")) + timedelta(microseconds=_number(delay, "microseconds"))
        )
    children = node.children()
    for position in range(children.size()):
        found |= _delays(children.apply(position))
    return found


def _number(interval: Any, name: str) -> int:
    # CalendarInterval's fields are public and final; py4j reads fields by reflection only.
    return int(interval.getClass().getField(name).get(interval))


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
    quiet = Walk(walk.event_times, walk.sources)
    referred: set[int] = quiet.rows(plan).ids
    whole = set(referred)
    fields: dict[int, set[str]] = {}
    for node in plan.walk():
        if node in leaves:
            continue
        if node.name in _OPAQUE:
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
        source = walk.source_of(leaf)
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
