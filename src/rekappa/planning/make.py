"""Making a plan: what a backfill would read and do, from the job's own query and the archive's metadata.

    plan = make_plan(spark, loaded, app, home, BackfillRequest(window))

Reads no events, but for strict mode's look at offsets; changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from rekappa.app import App, Job
from rekappa.config.bind import Query, queries
from rekappa.config.load import Loaded
from rekappa.config.schema import payload_ddl
from rekappa.errors import PlanError
from rekappa.home import Home
from rekappa.plan.chunks import plan_chunks
from rekappa.plan.margins import Margins, derive, with_overrides
from rekappa.plan.mode import IN_ORDER, Choice, choose
from rekappa.plan.model import Slice
from rekappa.plan.ordered import MAX_ROWS, plan_slices, wide_span
from rekappa.plan.plan import Estimate, JobPlan, Mode, Plan
from rekappa.plan.shape import Shape
from rekappa.planning.inputs import Input, check_complete, scan_source
from rekappa.planning.keeping import taken_by
from rekappa.planning.lateness import later_events
from rekappa.planning.request import BackfillRequest
from rekappa.record import METADATA, record_ddl
from rekappa.sources.open import named_source, past_candidate
from rekappa.spark.analysis import analyse
from rekappa.store.record import Kind, State
from rekappa.store.runs import RunStore
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BackfillRequest", "make_plan"]

DEFAULT_SPEED: Mapping[Mode, int] = {
    Mode.BULK: 1_000_000,
    Mode.ORDERED: 120_000,
    Mode.STRICT: 80_000,
    Mode.EXACT: 80_000,
}
"""Rows per second on two cores, used until a run of the same job has been measured.

Bulk and ordered are near what our benchmarks of a join gave; strict and exact are guesses.
"""


@dataclass(frozen=True, slots=True)
class _Asked:
    """One job's part of the request."""

    job: Job
    queries: tuple[Query, ...]
    shapes: tuple[Shape, ...]
    choice: Choice
    margins: Margins

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The columns used of each source by any output; fields of the metadata are written with a dot."""
        return {source: _columns(self.shapes, source) for source in self.job.sources}


def make_plan(spark: SparkSession, loaded: Loaded, app: App, home: Home, request: BackfillRequest) -> Plan:
    """The frozen plan. Refuses what can't be replayed, and windows that the archive does not hold."""
    made = [part for job in _chosen(app, request) for part in _plan_job(spark, loaded, app, home, request, job)]
    return Plan(app.name, request.window, tuple(request.regions), tuple(made))


def _chosen(app: App, request: BackfillRequest) -> list[Job]:
    unknown = [name for name in request.jobs if name not in app.jobs]
    if unknown:
        raise PlanError(f"Cannot find job {unknown[0]!r} in app {app.name!r}", hint=f"It has: {', '.join(app.jobs)}.")
    return [job for name, job in app.jobs.items() if not request.jobs or name in request.jobs]


def _plan_job(
    spark: SparkSession, loaded: Loaded, app: App, home: Home, request: BackfillRequest, job: Job
) -> tuple[JobPlan, ...]:
    """The plan of one job: one part, or in exact mode one for each of its queries."""
    asked = _ask(spark, loaded, app, request, job)
    reads = request.window.widened(asked.margins.warm_up, asked.margins.drain)
    inputs = [scan_source(loaded, home, name, reads, request.regions, asked.columns[name]) for name in job.sources]
    mode = asked.choice.mode
    if mode is not Mode.BULK and any(one.table is None for one in inputs):
        raise PlanError(
            f"Cannot replay job {job.name!r} in {mode} mode: a source of it is not an Iceberg table",
            hint="Only bulk mode reads Hive tables.",
        )
    timed = {shape.event_time is not None for shape in asked.shapes}
    if mode is not Mode.BULK and len(timed) > 1:
        raise PlanError(
            f"Cannot replay job {job.name!r} in {mode} mode: only some of its sinks declare an event time",
            hint="Declare event_time for all of them in rekappa.yaml.",
        )
    notes = check_complete(inputs, request.window, reads, request.regions, request.allow_incomplete)
    for one in inputs if True in timed else ():
        if one.table is not None and mode is not Mode.EXACT:
            column = named_source(loaded, one.plan.name).event_time
            notes += later_events(one.table, one.plan.name, column, request.window, reads, request.regions)
    if not any(one.splits for one in inputs) and all(one.table is not None for one in inputs):
        notes.append("The archive holds no event of this window: the output will be empty.")
    planned = JobPlan(
        job=job.name,
        sinks=tuple(query.sink for query in asked.queries),
        mode=mode,
        reason=asked.choice.reason,
        warm_up=asked.margins.warm_up,
        warm_up_reason=asked.margins.warm_up_reason,
        drain=asked.margins.drain,
        drain_reason=asked.margins.drain_reason,
        reads=reads,
        sources=tuple(one.plan for one in inputs),
        warnings=(*asked.choice.warnings, *asked.margins.notes, *notes),
        chance=tuple(sorted({name for shape in asked.shapes for name in (*shape.clock, *shape.random)})),
    )
    parts: tuple[JobPlan, ...]
    if mode is Mode.EXACT:
        from rekappa.planning.exact import exact_plans

        parts = exact_plans(spark, loaded, home, request, planned, asked.queries, asked.shapes, inputs)
    else:
        parts = (_cut(request, asked, planned, inputs),)
    return tuple(replace(part, estimate=_estimate(home, loaded, part, asked.margins)) for part in parts)


def _ask(spark: SparkSession, loaded: Loaded, app: App, request: BackfillRequest, job: Job) -> _Asked:
    config = loaded.config
    own = tuple(query for query in queries(config, app) if query.job == job.name)
    sources = {name: named_source(loaded, name) for name in job.sources}
    schemas = {name: record_ddl(payload_ddl(source, loaded.folder)) for name, source in sources.items()}
    times = {name: source.event_time for name, source in sources.items()}
    shapes: list[Shape] = []
    # An output with two sinks is looked at once for each: they may declare different event times.
    for declared in dict.fromkeys(config.sinks[query.sink].event_time for query in own):
        alike = [query for query in own if config.sinks[query.sink].event_time == declared]
        found = analyse(spark, job, schemas, times, {query.output: declared for query in alike})
        shapes += [replace(found[query.output], taken=taken_by(config.sinks[query.sink])) for query in alike]
    choice = choose(job.name, shapes, request.mode, warm_up_told=request.warm_up is not None)
    lateness = max(past_candidate(name, source)[1].max_misalignment for name, source in sources.items())
    margins = with_overrides(derive(shapes, lateness), request.warm_up, request.drain)
    return _Asked(job, own, tuple(shapes), choice, margins)


def _columns(shapes: Sequence[Shape], source: str) -> tuple[str, ...]:
    plain = dict.fromkeys(name for shape in shapes for name in shape.columns.get(source, ()) if name != METADATA)
    inner = dict.fromkeys(field for shape in shapes for field in shape.metadata.get(source, ()))
    return (*plain, *(f"{METADATA}.{field}" for field in inner))


def _cut(request: BackfillRequest, asked: _Asked, planned: JobPlan, inputs: Sequence[Input]) -> JobPlan:
    """The plan with its chunks or slices."""
    splits = [split for one in inputs for split in one.splits]
    if planned.mode is Mode.BULK:
        chunks = plan_chunks(splits, window=request.window, warm_up=planned.warm_up, drain=planned.drain)
        return replace(planned, chunks=chunks)
    bound = {one.plan.name: one.plan.max_misalignment for one in inputs}
    rows = request.slice_rows or MAX_ROWS
    slices: tuple[Slice, ...]
    if planned.mode is Mode.ORDERED:
        free = not any(shape.has(*IN_ORDER) for shape in asked.shapes)
        wide = wide_span(splits, max_misalignment=bound, reads=planned.reads) if free else None
        slices = plan_slices(
            splits, max_misalignment=bound, reads=planned.reads, max_rows=rows, max_span=request.slice_span or wide,
            regions=request.regions,
        )  # fmt: skip
        return replace(planned, slices=slices)
    from rekappa.planning.offsets import strict_plan

    return strict_plan(request, planned, inputs, rows, request.slice_span or min(bound.values()))


def _estimate(home: Home, loaded: Loaded, planned: JobPlan, margins: Margins) -> Estimate:
    rows = sum(source.rows for source in planned.sources)
    size = sum(source.bytes for source in planned.sources)
    speed, basis = _speed(home, loaded, planned)
    # Bulk keeps no state between chunks; state that nothing ends can't be told beforehand.
    held = margins.retention if planned.mode is not Mode.BULK else None
    state = _peak(planned, held) if held is not None else None
    return Estimate(rows, size, timedelta(seconds=round(rows / speed, 1)), state, basis)


def _speed(home: Home, loaded: Loaded, planned: JobPlan) -> tuple[float, str]:
    """Rows per second, and where that figure is from."""
    for run in RunStore.open(home).runs(loaded.config.app, Kind.BACKFILL):
        for job in run.progress.get("jobs", ()) if run.state is State.FINISHED else ():
            if job.get("job") == planned.job and job.get("mode") == planned.mode and job.get("rows_per_second"):
                speed = float(job["rows_per_second"])
                return speed, f"{speed:,.0f} rows/s, measured in run {run.id}"
    speed = DEFAULT_SPEED[planned.mode]
    return speed, f"{speed:,} rows/s, a default: no run of this job has been measured"


def _peak(planned: JobPlan, retention: timedelta) -> int:
    """The most rows that lie within one retention of each other."""
    width = _stretch(planned.reads, planned)
    if width is None or retention <= timedelta():
        return 0
    together = [sum(counts) for counts in zip(*(one.density for one in planned.sources if one.density), strict=True)]
    reach = max(1, -(-retention // width))
    return max((sum(together[at : at + reach]) for at in range(len(together))), default=0)


def _stretch(reads: Window, planned: JobPlan) -> timedelta | None:
    lengths = [len(one.density) for one in planned.sources if one.density]
    return reads.length / lengths[0] if lengths else None
