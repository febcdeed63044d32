"""Gathering what advice is about: from the run store, the checkpoints, the archive, Kafka and the job's own plan.

Nothing is changed. What can't be found out (a cluster that is down, an archive that is not there) is a fact too.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.app import App
from rekappa.config import model
from rekappa.config.bind import Query, queries
from rekappa.config.load import Loaded
from rekappa.errors import ArchiveError, PlanError, RekappaError, SourceError
from rekappa.home import Home
from rekappa.lookups.open import with_empty_lookups
from rekappa.plan.coverage import Want, dropped
from rekappa.plan.margins import derive
from rekappa.plan.mode import OPEN
from rekappa.plan.offsets import Position
from rekappa.plan.shape import Operation, Shape
from rekappa.planning.catch_up import archive_of, archived_partitions, kept_by_kafka, look
from rekappa.planning.make import BackfillRequest, make_plan
from rekappa.recovery.consumers import consumers, known_apps
from rekappa.recovery.listing import query_restarts
from rekappa.recovery.outage import Memory, OutageFacts, PointFact, QueryFacts, SinkPlace, Trouble
from rekappa.recovery.retention import kept_until
from rekappa.replay.batches import positions
from rekappa.runs.current import current_run
from rekappa.runs.live_run import LiveRun
from rekappa.sources.decode import record_type
from rekappa.sources.open import named_source, past_candidate
from rekappa.spark.analysis import analyse
from rekappa.spark.offsetlog import read_batch
from rekappa.store.record import Run
from rekappa.store.runs import RunStore
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def gather(
    spark: SparkSession,
    loaded: Loaded,
    app: App,
    home: Home,
    window: Window,
    *,
    trouble: Trouble | None = None,
    state_wrong: bool | None = None,
) -> OutageFacts:
    """The facts about the app's live run and the window. What was wrong is found out from the run's own batches, unless
    told: a job that committed none in the window stood still."""
    store, bound = RunStore.existing(home), queries(loaded.config, app)
    run = current_run(store, loaded)
    live = LiveRun(loaded, app, home, run.id, bound)
    found = trouble or (Trouble.WRONG if _ran(store, run, bound, window) else Trouble.STOPPED)
    wants = live.unread()
    kept = kept_by_kafka(loaded, home, live.sources)
    gone = dropped(wants.values(), kept)
    since, whole = _archived(spark, live)
    wrong = found is Trouble.WRONG
    shapes = _shapes(spark, loaded, app, bound) if wrong else {}
    points = _points(spark, live, store, run, window) if wrong else {}
    apps = known_apps(store) if wrong else []
    return OutageFacts(
        app=loaded.config.app,
        window=window,
        now=datetime.now(UTC),
        trouble=found,
        queries=tuple(
            _query(spark, live, query, window, shapes.get(query.name), points.get(query.name), apps) for query in bound
        ),
        state_wrong=state_wrong,
        run=run.id,
        going=run.state.going,
        behind=sum(max(0, kept[at].end - want.start) for at, want in wants.items() if at in kept),
        kept_until=kept_until(loaded, home, wants.values(), kept),
        dropped=tuple(f"{want.position.topic}/{want.position.partition} ({want.position.region})" for want in gone),
        holes=_holes(spark, live, list(wants.values())) if gone else (),
        archived_since=since,
        whole=whole,
    )


def _ran(store: RunStore, run: Run, bound: Sequence[Query], window: Window) -> bool:
    return any(window.contains(batch.committed) for query in bound for batch in store.batches(run.id, query.name))


def _query(
    spark: SparkSession,
    live: LiveRun,
    query: Query,
    window: Window,
    shape: Shape | None,
    point: PointFact | None,
    apps: Sequence[Loaded],
) -> QueryFacts:
    place = _place(live.loaded.config.sinks[query.sink])
    if shape is None:
        return QueryFacts(query.sink, place)
    refused, takes = _backfill(spark, live, query, window)
    memory, remembers = _memory(live.loaded, live.app.jobs[query.job].sources, shape)
    return QueryFacts(
        sink=query.sink,
        place=place,
        memory=memory,
        remembers=remembers,
        point=point,
        refused=refused,
        consumers=consumers(live.loaded, live.home, query.sink, apps),
        lookups=shape.static,
        clock=shape.clock,
        takes=takes,
    )


def _place(sink: model.Sink) -> SinkPlace:
    if isinstance(sink, model.KafkaSink):
        return SinkPlace.TOPIC
    return SinkPlace.SERVICE if isinstance(sink, model.KeyedSink) else SinkPlace.TABLE


def _shapes(spark: SparkSession, loaded: Loaded, app: App, bound: Sequence[Query]) -> dict[str, Shape]:
    """What each query is made of, by its name."""
    config, found = loaded.config, {}
    for query in bound:
        job, sink = with_empty_lookups(spark, config, app.jobs[query.job]), config.sinks[query.sink]
        schemas = {name: record_type(named_source(loaded, name), loaded.folder) for name in job.sources}
        modes = {one.output: config.sinks[one.sink].output_mode for one in bound if one.job == job.name}
        shapes = analyse(
            spark, job, schemas, {query.output: sink.event_time}, {**modes, query.output: sink.output_mode}
        )
        found[query.name] = shapes[query.output]
    return found


def _memory(loaded: Loaded, sources: Sequence[str], shape: Shape) -> tuple[Memory, timedelta | None]:
    if not shape.stateful:
        return Memory.NONE, None
    if shape.has(Operation.CUSTOM):
        return Memory.CUSTOM, None
    own = [named_source(loaded, name) for name in sources]
    lateness = max((_lateness(name, source) for name, source in zip(sources, own, strict=True)), default=timedelta())
    remembers = derive([shape], lateness, max(source.clock_skew for source in own)).retention
    return (Memory.OPEN, None) if shape.has(*OPEN) or remembers is None else (Memory.BOUNDED, remembers)


def _lateness(name: str, source: model.Source) -> timedelta:
    try:
        return past_candidate(name, source)[1].max_misalignment
    except SourceError:
        return timedelta()


def _backfill(spark: SparkSession, live: LiveRun, query: Query, window: Window) -> tuple[str | None, timedelta | None]:
    """Why a backfill of the window can't be planned, if so, and how long it is thought to take."""
    try:
        plan = make_plan(spark, live.loaded, live.app, live.home, BackfillRequest(window, sinks=(query.sink,)))
    except (ArchiveError, PlanError, SourceError) as error:
        return error.message[0].lower() + error.message[1:], None
    (job,) = plan.jobs
    return None, job.estimate.duration if job.estimate is not None else None


def _points(spark: SparkSession, live: LiveRun, store: RunStore, run: Run, window: Window) -> dict[str, PointFact]:
    """For each query the newest point at or before the window, and whether all that follows it can be read."""
    found: dict[str, PointFact] = {}
    for query in live.bound:
        fitting = [
            one
            for one in query_restarts(live.home, store, run).get(query.name, ())
            if one.point.restorable and one.point.committed <= window.start
        ]
        if not fitting:
            continue
        chosen = fitting[-1]
        standings = positions(read_batch(chosen.folder, chosen.point.batch).sources, live.feeds(query))
        wants = [
            Want(Position(one.source, one.region, one.topic, partition), end)
            for one in standings
            if one.reader == 0
            for partition, end in one.ends.items()
        ]
        kept = kept_by_kafka(live.loaded, live.home, live.sources)
        gone = dropped(wants, kept)
        holes = _holes(spark, live, wants) if gone else ()
        until = None if gone else kept_until(live.loaded, live.home, wants, kept)
        found[query.name] = PointFact(chosen.point.batch, chosen.point.committed, holes, until)
    return found


def _holes(spark: SparkSession, live: LiveRun, wants: Sequence[Want]) -> tuple[str, ...]:
    try:
        found = look(spark, live.loaded, live.home, wants)
    except RekappaError as error:
        return (error.message,)
    doubled = tuple(f"partition {one.partition} of topic {one.topic!r} is archived twice" for one in found.doubled)
    return (*(str(hole) for hole in found.coverage.holes), *doubled)


def _archived(spark: SparkSession, live: LiveRun) -> tuple[datetime | None, bool]:
    """From when on the archive of every source is there, and whether it has the topics from their first event on."""
    begun_late: list[datetime] = []
    firsts: list[datetime] = []
    untold = False
    for name in live.sources:
        try:
            found = archived_partitions(spark, archive_of(live.loaded, name).table, name, datetime.now(UTC))
        except RekappaError:
            found = {}
        if not found:
            return None, False
        firsts += [one.first_at for one in found.values()]
        begun_late += [one.first_at for one in found.values() if one.first > 0]
        kept = kept_by_kafka(live.loaded, live.home, [name])
        untold = untold or any(one.first > 0 and at not in found for at, one in kept.items())
    since = max(begun_late, default=None) or min(firsts, default=None)
    return since, not begun_late and not untold
