"""Making a plan: what a backfill would read and do, from the job's own query and the archive's metadata.

    plan = make_plan(spark, loaded, app, home, BackfillRequest(window))

Reads no events, but for strict mode's look at offsets, exact mode's at sessions, what a job asks of recorded services,
and a replay of what came before the window where custom state is alive when it begins; changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from rekappa.app import App, Job
from rekappa.config.bind import Query, queries
from rekappa.config.load import Loaded
from rekappa.config.model import AppConfig
from rekappa.errors import PlanError
from rekappa.home import Home
from rekappa.lookups.open import with_empty_lookups, with_lookups
from rekappa.lookups.planned import lookup_warnings, plan_lookups
from rekappa.lookups.services import plan_services, recalled_answers, service_warnings
from rekappa.plan.chunks import plan_chunks, whole_hours
from rekappa.plan.finality import Finality
from rekappa.plan.margins import Margins, derive, with_overrides
from rekappa.plan.mode import IN_ORDER, Choice, by_slice, choose
from rekappa.plan.ordered import MAX_ROWS, plan_slices, wide_span
from rekappa.plan.plan import Chunk, Estimate, JobPlan, LookupPlan, Mode, Plan
from rekappa.plan.shape import Operation, Shape, Tolerance
from rekappa.plan.speeds import kind_of_state, predicted
from rekappa.planning.chosen import chosen_jobs
from rekappa.planning.clocks import Clock, Fitted, Told, clock, fitted
from rekappa.planning.inputs import EventStretch, Input, archived_until, check_complete, scan_source
from rekappa.planning.keeping import taken_by
from rekappa.planning.request import BackfillRequest
from rekappa.planning.sessions import with_whole_sessions
from rekappa.planning.widths import chosen_span, production_width
from rekappa.record import INGESTION, METADATA
from rekappa.sources.decode import record_type
from rekappa.sources.open import named_source, open_batch, past_candidate
from rekappa.spark.analysis import analyse
from rekappa.spark.failures import read_failure
from rekappa.spark.outputs import require_made
from rekappa.store.runs import RunStore
from rekappa.timeline import EPOCH, Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BackfillRequest", "make_plan", "margins_of"]

UNKNOWN_GAP = timedelta(hours=1)
"""Taken for the gap of sessions that compute one for each row."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """One job's part of the request."""

    job: Job
    queries: tuple[Query, ...]
    shapes: tuple[Shape, ...]
    choice: Choice
    margins: Margins

    @property
    def by_slice(self) -> bool:
        """Whether bulk goes slice by slice: its output then depends on the slices, as in the other modes."""
        return self.choice.mode is Mode.BULK and any(by_slice(shape) for shape in self.shapes)

    @property
    def tolerances(self) -> dict[str, Mapping[str, Tolerance]]:
        """The columns of each sink that are equal to production's only up to order or rounding."""
        by_output = {shape.output: shape.tolerances for shape in self.shapes}
        return {query.sink: found for query in self.queries if (found := by_output[query.output])}

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The columns used of each source by any output; fields of the metadata are written with a dot."""
        return {source: _columns(self.shapes, source) for source in self.job.sources}


def make_plan(spark: SparkSession, loaded: Loaded, app: App, home: Home, request: BackfillRequest) -> Plan:
    """The frozen plan. Refuses what can't be replayed, and windows that the archive does not hold."""
    made = [
        part
        for job in chosen_jobs(app, loaded, request)
        for part in _plan_job(spark, loaded, app, home, request.of_job(job.name), job)
    ]
    return Plan(app.name, request.window, tuple(request.regions), tuple(made))


def margins_of(spark: SparkSession, loaded: Loaded, app: App, job: Job) -> Margins:
    """How far before and after a window a backfill of the job reads, by its query alone. Changes nothing."""
    any_hour = Window(EPOCH, EPOCH + timedelta(hours=1))
    return _ask(spark, loaded, app, BackfillRequest(any_hour), job).margins


def _plan_job(
    spark: SparkSession, loaded: Loaded, app: App, home: Home, request: BackfillRequest, job: Job
) -> tuple[JobPlan, ...]:
    """The plan of one job: one part, or in exact mode one for each of its queries."""
    asked = _ask(spark, loaded, app, request, job)
    mode, columns = asked.choice.mode, asked.columns

    def scanned(reads: Window, beside: Mapping[str, Sequence[EventStretch]] = {}) -> list[Input]:
        return [
            scan_source(loaded, home, name, reads, request.regions, columns[name], beside.get(name, ()))
            for name in job.sources
        ]

    asked = replace(asked, margins=_with_measured_state(spark, loaded, home, request, asked, scanned))
    inputs = scanned(asked.margins.reads(request.window), _event_stretches(spark, loaded, request, asked))
    sliced = mode is not Mode.BULK or asked.by_slice
    if sliced and any(one.table is None for one in inputs):
        raise PlanError(
            f"Cannot replay job {job.name!r} in {mode} mode: a source of it is not an Iceberg table",
            hint="Hive tables are read in bulk only, and not for jobs that depend on the order of events.",
        )
    if mode is not Mode.BULK and len({shape.event_time is not None for shape in asked.shapes}) > 1:
        raise PlanError(
            f"Cannot replay job {job.name!r} in {mode} mode: only some of its sinks declare an event time",
            hint="Declare event_time for all of them in rekappa.yaml.",
        )
    fit = _fitted(spark, loaded, home, request, asked, inputs)
    margins, reads = fit.margins, fit.margins.reads(request.window)
    if margins != asked.margins:
        inputs = scanned(reads)
    notes = [*check_complete(inputs, request.window, reads, request.regions, request.allow_incomplete), *fit.notes]
    if not any(one.splits for one in inputs) and all(one.table is not None for one in inputs):
        notes.append("The archive holds no event of this window: the output will be empty.")
    lookups = plan_lookups(spark, loaded.config, job, request.window, margins)
    notes += lookup_warnings(spark, loaded.config, lookups, margins.wanted(request.window))
    services = _plan_services(spark, loaded, home, request, asked, reads)
    notes += service_warnings(spark, loaded.config, home, services)
    planned = JobPlan(
        job=job.name,
        sinks=tuple(query.sink for query in asked.queries),
        mode=mode,
        reason=asked.choice.reason,
        warm_up=margins.warm_up,
        warm_up_reason=margins.warm_up_reason,
        drain=margins.drain,
        drain_reason=margins.drain_reason,
        reads=reads,
        sources=tuple(one.plan for one in inputs),
        lookups=(*lookups, *services),
        warnings=(*asked.choice.warnings, *margins.cut_off, *margins.notes, *notes),
        chance=tuple(sorted({name for shape in asked.shapes for name in (*shape.clock, *shape.random)})),
        tolerances=asked.tolerances,
        vouched=margins.vouched and fit.complete,
        state=kind_of_state(asked.shapes),
        by_slice=asked.by_slice,
        finality=_finality(asked, margins, archived_until(inputs, reads, request.regions)),
    )
    parts: tuple[JobPlan, ...]
    if mode is Mode.EXACT:
        from rekappa.planning.exact import exact_plans

        parts = exact_plans(spark, loaded, home, request, planned, asked.queries, asked.shapes, inputs)
    else:
        parts = (_cut(home, loaded, request, asked, planned, inputs, fit),)
    return tuple(replace(part, estimate=_estimate(home, app.name, part, margins)) for part in parts)


def _plan_services(
    spark: SparkSession, loaded: Loaded, home: Home, request: BackfillRequest, asked: _Asked, reads: Window
) -> tuple[LookupPlan, ...]:
    stretch = whole_hours(reads) if asked.choice.mode is Mode.BULK else reads

    def inputs() -> Mapping[str, DataFrame]:
        return {name: open_batch(spark, loaded, home, name, stretch, request.regions) for name in asked.job.sources}

    job = with_empty_lookups(spark, loaded.config, asked.job)
    # Exact mode reads whole micro-batches, wherever they begin.
    return plan_services(spark, loaded.config, home, job, inputs, narrow=asked.choice.mode is not Mode.EXACT)


def _finality(asked: _Asked, margins: Margins, archived: datetime) -> Finality | None:
    if not margins.timed:
        return None
    sessions = [one.length or UNKNOWN_GAP for shape in asked.shapes for one in shape.of(Operation.SESSION)]
    after = None if margins.open_after else margins.after
    gap = max(sessions, default=None)
    held = any(shape.stateful for shape in asked.shapes)
    return Finality(archived, margins.ahead, margins.delay, after, gap, margins.open_before, held)


def _ask(spark: SparkSession, loaded: Loaded, app: App, request: BackfillRequest, job: Job) -> _Asked:
    config = loaded.config
    every = [query for query in queries(config, app) if query.job == job.name]
    own = tuple(query for query in every if not request.sinks or query.sink in request.sinks)
    sources = {name: named_source(loaded, name) for name in job.sources}
    schemas = {name: record_type(source, loaded.folder) for name, source in sources.items()}
    shapes: list[Shape] = []
    modes = {query.output: config.sinks[query.sink].output_mode for query in every}
    # An output with two sinks is looked at once for each: they may declare different event times.
    for declared, mode in dict.fromkeys(_taken(config, query) for query in own):
        alike = [query for query in own if _taken(config, query) == (declared, mode)]
        outputs = [query.output for query in alike]
        # The job's other outputs are looked at beside these, each in a mode that it has.
        written = {**modes, **dict.fromkeys(outputs, mode)}
        empty = with_empty_lookups(spark, config, job)
        found = analyse(spark, empty, schemas, dict.fromkeys(outputs, declared), written)
        for query in alike:
            require_made(found[query.output].made, query.sink, config.sinks[query.sink])
        shapes += [replace(found[query.output], taken=taken_by(config.sinks[query.sink])) for query in alike]
    if any(by_slice(shape) for shape in shapes):
        from rekappa.replay.custom.query import obstacle

        in_the_way = "it reads a lookup"
        if not job.lookups:
            in_the_way = obstacle(spark, job, schemas)
        shapes = [replace(shape, obstacle=in_the_way) for shape in shapes]
    choice = choose(job.name, shapes, request.mode, warm_up_told=request.warm_up is not None)
    lateness = max(past_candidate(name, source)[1].max_misalignment for name, source in sources.items())
    ahead = request.clock_skew
    if ahead is None:
        ahead = max(source.clock_skew for source in sources.values())
    margins = with_overrides(derive(shapes, lateness, ahead), request.warm_up, request.drain)
    return _Asked(job, own, tuple(shapes), choice, margins)


def _fitted(
    spark: SparkSession, loaded: Loaded, home: Home, request: BackfillRequest, asked: _Asked, inputs: Sequence[Input]
) -> Fitted:
    """The margins after a look at the archive's clocks, and the outputs (one for each chunk) that they are for."""
    chunked = asked.choice.mode is Mode.BULK and not asked.by_slice
    splits = [split for one in inputs for split in one.splits]

    def outputs(margins: Margins) -> Sequence[Window]:
        if not chunked:
            return (request.window,)
        chunks = plan_chunks(splits, window=request.window, warm_up=margins.warm_up, drain=margins.drain)
        return [chunk.output for chunk in chunks]

    if asked.choice.mode is Mode.EXACT:
        # Finds its events by their own times, wherever production had read them.
        return Fitted(_with_whole_sessions(spark, loaded, home, request, asked, inputs), (request.window,))
    told = Told(request.clock_skew, request.drain)
    zone = _zone(spark)
    wanted = asked.margins.wanted(request.window)
    found = [
        clock(one.table, one.plan.name, column, own, wanted, request.regions, zone, told, one.happened.get(column))
        for one in inputs
        if one.table is not None and asked.margins.timed
        for column, own in _anchors(asked, one.plan.name, named_source(loaded, one.plan.name).event_time)
    ]
    known = [one for one in found if isinstance(one, Clock)]
    fit = fitted(asked.margins, known, outputs, told, *((whole_hours,) if chunked else ()))
    unknown = tuple(one for one in found if isinstance(one, str))
    return replace(fit, notes=(*fit.notes, *unknown), complete=fit.complete and not unknown)


def _event_stretches(
    spark: SparkSession, loaded: Loaded, request: BackfillRequest, asked: _Asked
) -> dict[str, list[EventStretch]]:
    """By source, the event times whose files tell how far its clocks were off: found with those that are read."""
    if asked.choice.mode is Mode.EXACT or not asked.margins.timed:
        return {}
    wanted, zone = asked.margins.wanted(request.window), _zone(spark)
    return {
        name: [
            EventStretch(one, wanted, zone) for one, _ in _anchors(asked, name, named_source(loaded, name).event_time)
        ]
        for name in asked.job.sources
    }


def _zone(spark: SparkSession) -> str:
    return spark.conf.get("spark.sql.session.timeZone") or "UTC"


def _with_measured_state(
    spark: SparkSession,
    loaded: Loaded,
    home: Home,
    request: BackfillRequest,
    asked: _Asked,
    scanned: Callable[[Window], Sequence[Input]],
) -> Margins:
    """The margins with a warm-up as long as custom state lives, where one batch job can show that."""
    custom = all(shape.has(Operation.CUSTOM) and by_slice(shape) for shape in asked.shapes)
    several = len({shape.output for shape in asked.shapes}) > 1
    if not custom or several or request.warm_up is not None or asked.choice.mode is Mode.EXACT:
        return asked.margins
    found = scanned(request.window)
    if any(one.table is None for one in found):
        return asked.margins
    from pyspark.errors import PySparkException

    from rekappa.planning.lives import with_measured_state
    from rekappa.replay.archives import archive_source
    from rekappa.replay.custom.run import Alive, Stretched, state_alive
    from rekappa.replay.tuning import arrow_settings, unset_by
    from rekappa.spark.state import settings

    bound = {one.plan.name: one.plan.max_misalignment for one in found}
    span = request.slice_span or min(bound.values())
    sources = {one.plan.name: archive_source(loaded, home, one.plan) for one in found}
    snapshots = {one.plan.name: one.plan.snapshot for one in found}

    def alive(stretch: Window) -> Alive:
        # On the grid of slices that ends at the window: what is in a slice must not depend on where reading begins.
        reads = Window(stretch.end - -(-stretch.length // span) * span, stretch.end)
        splits = [split for one in scanned(reads) for split in one.splits]
        slices = plan_slices(
            splits, max_misalignment=bound, reads=reads, max_rows=request.slice_rows or MAX_ROWS, max_span=span,
            regions=request.regions,
        )  # fmt: skip
        chosen = arrow_settings(sum(split.rows for split in splits), sum(split.bytes for split in splits))
        with settings(spark, unset_by(chosen, loaded.config.profiles.backfill.spark)):
            return state_alive(spark, sources, Stretched(slices, tuple(request.regions), snapshots), asked.job)

    try:
        return with_measured_state(asked.margins, request.window, alive)
    except PySparkException as error:
        note = f"How long custom state lives could not be measured: {read_failure(error).cause}"
        return replace(asked.margins, notes=(*asked.margins.notes, note))


def _with_whole_sessions(
    spark: SparkSession, loaded: Loaded, home: Home, request: BackfillRequest, asked: _Asked, inputs: Sequence[Input]
) -> Margins:
    margins = asked.margins
    finality = _finality(asked, margins, archived_until(inputs, margins.reads(request.window), request.regions))
    if request.warm_up is not None or not margins.cut_off or finality is None:
        return margins

    def results(reads: Window) -> list[DataFrame]:
        past = {name: open_batch(spark, loaded, home, name, reads, request.regions) for name in asked.job.sources}
        recalled = partial(recalled_answers, spark, loaded.config, home, planned=None)
        made = with_lookups(spark, loaded.config, asked.job, recalled).results(past)
        return [made[query.output] for query in asked.queries]

    return with_whole_sessions(spark, margins, finality.of_recorded(), request.window, results)


def _anchors(asked: _Asked, source: str, event_time: str) -> list[tuple[str, bool]]:
    """The columns of a source that output times are read from, and whether each is its own event time."""
    timed = [shape for shape in asked.shapes if shape.event_time is not None]
    named = {one.column for shape in timed for one in shape.anchors if one.source == source}
    columns = sorted(named or {event_time})
    return [(column, column == event_time) for column in columns if column != INGESTION]


def _taken(config: AppConfig, query: Query) -> tuple[str | None, str]:
    """What a sink declares that decides how its output is looked at: the event time and the output mode."""
    sink = config.sinks[query.sink]
    return sink.event_time, sink.output_mode


def _columns(shapes: Sequence[Shape], source: str) -> tuple[str, ...]:
    plain = dict.fromkeys(name for shape in shapes for name in shape.columns.get(source, ()) if name != METADATA)
    inner = dict.fromkeys(field for shape in shapes for field in shape.metadata.get(source, ()))
    return (*plain, *(f"{METADATA}.{field}" for field in inner))


def _cut(
    home: Home,
    loaded: Loaded,
    request: BackfillRequest,
    asked: _Asked,
    planned: JobPlan,
    inputs: Sequence[Input],
    fit: Fitted,
) -> JobPlan:
    """The plan with its chunks or slices."""
    splits = [split for one in inputs for split in one.splits]
    if planned.mode is Mode.BULK:
        chunks = [Chunk(number, output, fit.margins.reads(output)) for number, output in enumerate(fit.outputs)]
        planned = replace(planned, chunks=tuple(chunks))
        if not planned.by_slice:
            return planned
    bound = {one.plan.name: one.plan.max_misalignment for one in inputs}
    rows = request.slice_rows or MAX_ROWS
    strict = planned.mode is Mode.STRICT
    # Strict slices keep the order inside as well, so that any job may have them as wide as it likes.
    in_order = not strict and any(shape.has(*IN_ORDER) for shape in asked.shapes)
    narrow = strict or in_order
    own = min(bound.values()) if narrow else wide_span(splits, max_misalignment=bound, reads=planned.reads)
    width = production_width(home, loaded, request.live_run, asked.queries, splits, planned.reads, planned.finality)
    span, said = chosen_span(request.slice_span, own, width, in_order=in_order)
    planned = replace(planned, warnings=(*planned.warnings, *said))
    if strict:
        from rekappa.planning.offsets import strict_plan

        return strict_plan(request, planned, inputs, rows, span)
    # Without an event time a slice is in the window or not, as a whole.
    untimed = any(shape.event_time is None for shape in asked.shapes)
    slices = plan_slices(
        splits, max_misalignment=bound, reads=planned.reads, max_rows=rows, max_span=span, regions=request.regions,
        apart=(request.window.start, request.window.end) if untimed else (),
    )  # fmt: skip
    return replace(planned, slices=slices)


def _estimate(home: Home, app: str, planned: JobPlan, margins: Margins) -> Estimate:
    rows = sum(source.rows for source in planned.sources)
    size = sum(source.bytes for source in planned.sources)
    known = RunStore.open(home).speeds(app, planned.name, planned.mode, planned.state)
    duration, basis = predicted(rows, known)
    # Bulk keeps no state between chunks; state that nothing ends can't be told beforehand.
    held = margins.retention if planned.mode is not Mode.BULK else None
    state = _peak(planned, held) if held is not None else None
    return Estimate(rows, size, duration, state, basis)


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
