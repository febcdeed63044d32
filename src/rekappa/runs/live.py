"""The live run: the selected candidates through the jobs into the sinks, until told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from rekappa.app import App
from rekappa.checkpoints.attempts import drop_left
from rekappa.checkpoints.fingerprint import read_fingerprint, require_same_state, write_fingerprint
from rekappa.checkpoints.savepoints import keep_points
from rekappa.config.bind import Query, live_queries
from rekappa.config.load import Loaded
from rekappa.config.model import AppConfig, Candidate, KafkaCandidate
from rekappa.errors import AppError, LeaseLost, RunError, WorkFailed
from rekappa.fence.filter import unknown_sender
from rekappa.fence.line import Sender
from rekappa.fence.topic import LINEAGE
from rekappa.home import Home
from rekappa.lookups.planned import left_out
from rekappa.lookups.record import collect_answers
from rekappa.replay.batches import Feed, record_batches
from rekappa.runs.built import BuiltQuery, build_queries
from rekappa.runs.catch_up import Feeding, feedings, require_readable
from rekappa.runs.code import code_of, record_live_start
from rekappa.runs.current import (
    TOPICS,
    asked_of,
    drop_abandoned,
    live_lease,
    require_none_left_out,
    require_same_sources,
    require_same_topics,
    require_settled,
    same_places,
    topics_of,
)
from rekappa.runs.doubling import require_nothing_doubled
from rekappa.runs.live_run import LiveRun
from rekappa.runs.migration import Tell, prepare_sinks
from rekappa.runs.queries import AVAILABLE_NOW, ProgressReader, QueryProgress, StopBetweenBatches, start_query
from rekappa.runs.signals import stopping_on_signals
from rekappa.runs.waiting import Waits
from rekappa.sinks.registry import open_sink
from rekappa.sources.kafka import bootstrap
from rekappa.sources.topics import require_topics
from rekappa.spark.failures import read_failure, told
from rekappa.spark.launch import spark_log
from rekappa.spark.offsetlog import last_committed
from rekappa.spark.session import open_session
from rekappa.spark.state import PROVIDER, settings
from rekappa.storage.location import Location
from rekappa.store.claim import Claim
from rekappa.store.record import Kind, Run, State, new_run_id
from rekappa.store.runs import RunStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIGGER = timedelta(seconds=10)
"""How often a live query looks for new events, unless the profile says otherwise."""
FEWEST_KEPT, MOST_KEPT = 100, 400
"""Of how many batches Spark keeps offsets and state, unless spark.sql.streaming.minBatchesToRetain says otherwise: of
those of an hour, within these bounds.

Each is a file or more for every partition of every state store. Further back there are savepoints.
"""
LOOK = 0.3
SAVEPOINT_LOOK = 60.0
"""Seconds between two looks at whether a savepoint is due."""
GOES_ON = "Run it again to go on from the last batch."

OnProgress = Callable[[list[QueryProgress]], None]


class _Unheard(WorkFailed):
    """A query met a message whose sender was in no line when the query was built."""

    def __init__(self, message: str, hint: str, sender: Sender) -> None:
        super().__init__(message, hint=hint)
        self.sender = sender


@dataclass(frozen=True, slots=True)
class _Started:
    query: Query
    reader: ProgressReader
    feeds: tuple[Feed, ...]


def choose_run(
    store: RunStore,
    loaded: Loaded,
    bound: Sequence[Query],
    topics: Mapping[str, str],
    *,
    fresh: bool,
    append_again: bool,
) -> Run:
    """The app's live run to continue, or a new one. Called by the process that holds the app's leases."""
    last = run_to_continue(store, loaded, bound, fresh=fresh, append_again=append_again)
    return last or store.create(new_live_run(loaded, bound, topics))


def run_to_continue(
    store: RunStore, loaded: Loaded, bound: Sequence[Query], *, fresh: bool, append_again: bool
) -> Run | None:
    """The app's live run that goes on; None if a new one begins. Refuses what must be neither; changes nothing."""
    config = loaded.config
    last = next((run for run in same_places(store, loaded) if run.state.resumable), None)
    if last is None or fresh:
        if not append_again:
            require_nothing_doubled(store, config, bound, store.runs(config.app, Kind.LIVE))
        return None
    require_settled(last)
    require_same_sources(last, loaded)
    if not append_again:
        require_none_left_out(store, last, bound, loaded)
    return last


def new_live_run(loaded: Loaded, bound: Sequence[Query], topics: Mapping[str, str], **told: Any) -> Run:
    """The record of a live run that begins; `told` is added to what it says of itself for ever."""
    spec = {**asked_of(loaded, bound), TOPICS: dict(topics), **told}
    return Run(new_run_id(Kind.LIVE), loaded.config.app, Kind.LIVE, str(loaded.folder), spec=spec)


def run_live(
    loaded: Loaded,
    app: App,
    home: Home,
    *,
    available_now: bool = False,
    fresh: bool = False,
    append_again: bool = False,
    choose: Callable[[RunStore], Run] | None = None,
    on_start: Callable[[Run], None] = lambda run: None,
    on_progress: OnProgress = lambda progress: None,
    tell: Tell = lambda text: None,
) -> Run:
    """Run until stopped (Ctrl-C, SIGTERM) or, with `available_now`, until caught up.

    What Kafka no longer has of the events that come next is read from the archive first; refused, with nothing touched,
    where that lacks some too. `choose`, called with the leases held, says which run it is, if not the app's last one.

    Stopped or killed, the same call continues where the checkpoint is; no event is lost or doubled. `fresh` begins a
    new run with empty state, and is refused where that would append again what an earlier run has appended, unless
    `append_again`. One process at a time writes an app's sinks. With another candidate of a sink than the file selects
    it is a run of its own, which is not production and leaves the sinks that were not switched alone.
    """
    config, bound = loaded.config, live_queries(loaded, app)
    read = {name for query in bound for name in app.jobs[query.job].sources}
    chosen = {name: config.sources[name].candidates[config.sources[name].selected] for name in sorted(read)}
    require_topics(config, home, chosen, tell)
    topics = topics_of(loaded, home)
    store = RunStore.open(home)
    code = code_of(home, loaded)
    with store.claim([live_lease(loaded, query) for query in bound], f"run {config.app!r}") as claim:
        if choose is None:
            run = choose_run(store, loaded, bound, topics, fresh=fresh, append_again=append_again)
        else:
            run = choose(store)
        require_same_topics(run, topics, f"continue live run {run.id}")
        live = LiveRun(loaded, app, home, run.id, bound)
        require_readable(live, lambda: live_session(loaded, home))
        claim.begin(run.id, spark_log(home).name)
        started: list[_Started] = []
        try:
            on_start(store.run(run.id))
            with told(f"run {config.app!r}", GOES_ON), stopping_on_signals() as stop:
                spark = live_session(loaded, home)
                record = partial(record_live_start, store, loaded, code, claim)
                waits = Waits(tell, _addresses(config, home, chosen))
                after = partial(
                    look_after, home, store, run, [query.name for query in bound], config.history_retention, tell
                )
                keep = partial(_keep_up, spark, loaded, home, after, tell)
                collect_answers(spark, config, home)
                for feeding in feedings(live, spark, store, claim, tell):
                    when = AVAILABLE_NOW if available_now or feeding.ends else _trigger(loaded)
                    heard: set[Sender] = set()
                    while True:
                        started.clear()
                        try:
                            _start(spark, live, claim, feeding, when, stop, started, record, tell)
                            _watch(store, claim, live.folder, started, stop, on_progress, keep, waits)
                            break
                        except _Unheard as error:
                            # A writer that began, or was rewound, since the queries were built: look again, once.
                            if error.sender in heard:
                                raise
                            heard.add(error.sender)
                            _stop_all(started)
                    if stop.is_set():
                        break
        except BaseException as error:
            # Before the leases are given back: nothing of this run may write beside the next one.
            _stop_all(started)
            if not isinstance(error, LeaseLost):
                claim.end(State.FAILED, error=str(error))
            raise
        claim.end(State.STOPPED)
    return store.run(run.id)


def _addresses(config: AppConfig, home: Home, read: Mapping[str, Candidate]) -> dict[str, str]:
    """Where the topics are that a run reads, by their names."""
    return {
        config.cluster(name).topic(candidate.topic): bootstrap(config, name, home)
        for candidate in read.values()
        if isinstance(candidate, KafkaCandidate)
        for name in candidate.cluster
    }


def live_session(loaded: Loaded, home: Home) -> SparkSession:
    """Spark under the live profile."""
    return open_session(loaded.config, "live", home, **_retention(loaded))


def _trigger(loaded: Loaded) -> timedelta:
    return loaded.config.profiles.live.trigger or TRIGGER


def _retention(loaded: Loaded) -> dict[str, str]:
    key = "spark.sql.streaming.minBatchesToRetain"
    return {} if key in loaded.config.profiles.live.spark else {key: str(kept_batches(_trigger(loaded)))}


def kept_batches(trigger: timedelta) -> int:
    """As many batches as an hour has, in reason."""
    hour = MOST_KEPT if trigger <= timedelta() else -(-timedelta(hours=1) // trigger)
    return min(max(hour, FEWEST_KEPT), MOST_KEPT)


def _start(
    spark: SparkSession,
    live: LiveRun,
    claim: Claim,
    feeding: Feeding,
    trigger: timedelta,
    stop: threading.Event,
    started: list[_Started],
    record: Callable[[str, Location, tuple[Feed, ...]], None],
    tell: Tell,
) -> None:
    """Build and check every query, then prepare every sink, then start; adds each to `started` when it has.

    `record` is told of each just before it starts, `tell` of every table that is altered.
    """
    loaded, config, history = live.loaded, live.loaded.config, live.history()
    cap = config.profiles.live.max_rows_per_second
    built = [(one, open_sink(one.query.sink, config, live.home, cap)) for one in build_queries(spark, live, feeding)]
    for one, _ in built:
        _require_state(one, live.checkpoint(one.query), tell)
    for name in sorted({name for one, _ in built for name in live.app.jobs[one.query.job].lookups}):
        for text in left_out(spark, config, name):
            tell(f"warning: {text}")
    prepare_sinks(spark, loaded, [(sink, one.rows.schema) for one, sink in built], tell)
    for one, sink in built:
        query, checkpoint, order = one.query, live.checkpoint(one.query), live.feeds(one.query)
        record(query.name, checkpoint, order)
        held = partial(history.holds_back, query.name, checkpoint, order) if history else lambda number: False
        try:
            with settings(spark, {PROVIDER: one.provider, **feeding.settings(query)}):
                mode = config.sinks[query.sink].output_mode
                handle = start_query(one.rows, sink, claim, query.name, checkpoint, trigger, stop, mode, held)
        except Exception as error:
            if type(error).__name__ != "AnalysisException":
                raise
            message = str(error).split(";\n", 1)[0]
            raise AppError(f"Cannot stream job {query.job!r} into sink {query.sink!r}: {message}") from error
        started.append(_Started(query, ProgressReader(query.name, handle), order))
        write_fingerprint(checkpoint, one.operators)


def _require_state(one: BuiltQuery, checkpoint: Location, tell: Tell) -> None:
    """Refuse code that would take one part of the kept state for another."""
    kept = read_fingerprint(checkpoint) if last_committed(checkpoint) is not None else None
    for note in require_same_state(one.query.name, kept, one.operators) if kept is not None else ():
        tell(f"query {one.query.name}: {note}; state that is there stays as it was made")


def _watch(
    store: RunStore,
    claim: Claim,
    folder: Location,
    started: list[_Started],
    stop: threading.Event,
    on_progress: OnProgress,
    keep: Callable[[], None],
    waits: Waits,
) -> None:
    """Report and record until every query has ended; one that fails ends the others. `keep` is called now and then."""
    looked = time.monotonic()
    recorded: dict[str, int] = {}
    while any(one.reader.query.isActive for one in started):
        time.sleep(LOOK)
        if time.monotonic() - looked > SAVEPOINT_LOOK:
            keep()
            looked = time.monotonic()
        failures = [found for one in started if (found := _failure(one))]
        if unheard := next((one for one in failures if isinstance(one, _Unheard)), None):
            raise unheard
        if failures:
            stop.set()
        if stop.is_set():
            _stop_idle(started)
        waiting = waits.look({one.query.name: str(one.reader.query.status["message"]) for one in started})
        _report(store, claim, folder, started, on_progress, recorded, waiting)
    _report(store, claim, folder, started, on_progress, {})
    if failure := next((found for one in started if (found := _failure(one))), None):
        raise failure


def _keep_up(spark: SparkSession, loaded: Loaded, home: Home, after: Callable[[], None], tell: Tell) -> None:
    """What is due now and then beside the queries; what services answered goes into their records."""
    after()
    try:
        with told("collect what services answered", ""):
            collect_answers(spark, loaded.config, home)
    except WorkFailed as error:
        tell(f"answers of services are collected later: {error}")


def look_after(
    home: Home, store: RunStore, run: Run, queries: Sequence[str], remembered: timedelta, tell: Tell
) -> None:
    """Take a savepoint if it is due, and let go of what is too old: savepoints, checkpoints that were abandoned, and
    micro-batches of before what is `remembered`.

    A disk that is full, or a first batch that is at work, must not end the run: what could not be kept now is kept the
    next time.
    """
    try:
        now = datetime.now(UTC)
        if keep_points(home, run.app, run.id, queries, now) is not None:
            drop_abandoned(home, store, run.app, now)
            drop_left(home, run.app, {one.id for one in store.runs(run.app)}, now)
            store.drop_batches(run.id, now - remembered)
    except (OSError, RunError) as error:
        tell(f"no savepoint now: {error}")


def _stop_idle(started: list[_Started]) -> None:
    """A query at work on a batch ends by itself after it; one that waits for events is stopped here."""
    for one in started:
        if one.reader.query.isActive and not one.reader.query.status["isTriggerActive"]:
            one.reader.query.stop()


def _stop_all(started: list[_Started]) -> None:
    """Leave no query behind, however the run ends. Without a JVM there is none."""
    for one in started:
        with suppress(Exception):
            one.reader.query.stop()


def _failure(one: _Started) -> Exception | None:
    error = one.reader.query.exception() if not one.reader.query.isActive else None
    if error is None or StopBetweenBatches.__name__ in str(error):
        return None
    name = f"Query {one.query.name!r} of job {one.query.job!r}"
    if sender := unknown_sender(error):
        return _Unheard(
            f"{name} failed: it was sent messages by run {sender[0]!r}, query {sender[1]!r}, of which nobody knows "
            f"whether they count: topic {LINEAGE!r} of the cluster does not name them",
            f"If they do, `rekappa lineage TOPIC --accept {sender[0]}/{sender[1]}` says so.",
            sender,
        )
    found = read_failure(error)
    hint = f"{found.remedy} Then run it again: it goes on from the last batch." if found.remedy else GOES_ON
    return WorkFailed(f"{name} failed: {found.cause}", hint=hint)


def _report(
    store: RunStore,
    claim: Claim,
    folder: Location,
    started: list[_Started],
    on_progress: OnProgress,
    recorded: dict[str, int],
    waiting: str | None = None,
) -> None:
    """Tell and keep how far each query is; `recorded` is up to which batch its log was read: it may be far away."""
    progress = [one.reader.read() for one in started]
    claim.update(progress={"queries": [_plain(report) for report in progress], "waits": waiting})
    for one, report in zip(started, progress, strict=True):
        if recorded.get(one.query.name) != report.batch:
            record_batches(store, claim, one.query.name, folder / one.query.name, one.feeds)
            recorded[one.query.name] = report.batch
    on_progress(progress)


def _plain(report: QueryProgress) -> dict[str, Any]:
    return {**asdict(report), "watermark": report.watermark.isoformat() if report.watermark else None}
