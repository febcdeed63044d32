"""The live run: the selected candidates through the jobs into the sinks, until told to stop."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rekappa.app import App
from rekappa.config.bind import Query, queries
from rekappa.config.load import Loaded
from rekappa.errors import AppError, RunError
from rekappa.home import Home
from rekappa.replay.batches import Feed, feeds, record_batches
from rekappa.runs.code import code_of, record_live_start
from rekappa.runs.queries import AVAILABLE_NOW, ProgressReader, QueryProgress, StopBetweenBatches, start_query
from rekappa.runs.signals import stopping_on_signals
from rekappa.sinks.registry import open_sink
from rekappa.sources.open import open_stream
from rekappa.spark.session import open_session, plain
from rekappa.spark.state import PROVIDER, settings, state_store
from rekappa.store.record import Kind, Run, State, new_run_id
from rekappa.store.runs import RunStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIGGER = timedelta(seconds=10)
"""How often a live query looks for new events, unless the profile says otherwise."""
KEEP_CHECKPOINTS = timedelta(days=3)
"""How far back a live run can be rewound, unless spark.sql.streaming.minBatchesToRetain says otherwise."""
LOOK = 0.3

OnProgress = Callable[[list[QueryProgress]], None]


@dataclass(frozen=True, slots=True)
class _Started:
    query: Query
    reader: ProgressReader
    feeds: tuple[Feed, ...]


def choose_run(store: RunStore, loaded: Loaded, *, fresh: bool) -> Run:
    """The app's live run to continue, or a new one. Refuses while one is going."""
    config = loaded.config
    selected = {name: source.selected for name, source in config.sources.items()}
    earlier = store.runs(config.app, Kind.LIVE)
    going = [run for run in earlier if run.state.going]
    if going:
        raise RunError(
            f"Cannot run {config.app!r}: live run {going[0].id} is going in process {going[0].pid}",
            hint=f"`rekappa stop {going[0].id}` stops it.",
        )
    last = next((run for run in earlier if run.state.resumable), None)
    if last is None or fresh:
        spec = {"selected": selected, "overrides": list(loaded.overrides)}
        run = Run(id=new_run_id(Kind.LIVE), app=config.app, kind=Kind.LIVE, folder=str(loaded.folder), spec=spec)
        return store.create(run)
    if last.spec.get("selected") != selected:
        raise RunError(
            f"Cannot continue live run {last.id}: it read {last.spec.get('selected')}, now {selected} is selected",
            hint="Select the same candidates, or start over with `--fresh` (new checkpoints, no state).",
        )
    return last


def run_live(
    loaded: Loaded,
    app: App,
    home: Home,
    *,
    available_now: bool = False,
    fresh: bool = False,
    on_start: Callable[[Run], None] = lambda run: None,
    on_progress: OnProgress = lambda progress: None,
) -> Run:
    """Run until stopped (Ctrl-C, SIGTERM) or, with `available_now`, until caught up.

    Stopped or killed, the same call continues where the checkpoint is; no event is lost or doubled.
    """
    store = RunStore.open(home)
    code = code_of(home, loaded)
    run = store.claim(choose_run(store, loaded, fresh=fresh).id)
    try:
        on_start(run)
        trigger = loaded.config.profiles.live.trigger or TRIGGER
        with stopping_on_signals() as stop:
            spark = open_session(loaded.config, "live", home, **_retention(loaded, trigger))
            record = partial(record_live_start, store, loaded, code, run.id)
            started = _start(spark, loaded, app, home, run, AVAILABLE_NOW if available_now else trigger, stop, record)
            _watch(store, run, home, started, stop, on_progress)
    except BaseException as error:
        store.end(run.id, State.FAILED, error=str(error))
        raise
    return store.end(run.id, State.STOPPED)


def _retention(loaded: Loaded, trigger: timedelta) -> dict[str, str]:
    key = "spark.sql.streaming.minBatchesToRetain"
    if key in loaded.config.profiles.live.spark:
        return {}
    batches = math.ceil(KEEP_CHECKPOINTS / max(trigger, timedelta(milliseconds=100)))
    return {key: str(max(100, batches))}


def _start(
    spark: SparkSession,
    loaded: Loaded,
    app: App,
    home: Home,
    run: Run,
    trigger: timedelta,
    stop: threading.Event,
    record: Callable[[str, Path, tuple[Feed, ...]], None],
) -> list[_Started]:
    """Build every query and prepare every sink before the first one starts; `record` is told of each before it does."""
    config = loaded.config
    built = []
    for job in app.jobs.values():
        inputs = {name: open_stream(spark, loaded, home, name) for name in job.sources}
        results = job.results(inputs)
        for query in queries(config, app):
            if query.job == job.name:
                rows = results[query.output]
                sink = open_sink(query.sink, config, home, config.profiles.live.max_rows_per_second)
                sink.prepare(spark, rows.schema)
                built.append((query, rows, sink, feeds(config, job)))
    started = []
    for query, rows, sink, order in built:
        checkpoint = home.checkpoint(config.app, run.id) / query.name
        checkpoint.mkdir(parents=True, exist_ok=True)
        chosen = config.profiles.live.spark.get(PROVIDER)
        record(query.name, checkpoint, order)
        try:
            with settings(spark, {PROVIDER: plain(chosen) if chosen else state_store(rows)}):
                mode = config.sinks[query.sink].output_mode
                handle = start_query(rows, sink, run.id, query.name, checkpoint, trigger, stop, mode)
        except Exception as error:
            if type(error).__name__ != "AnalysisException":
                raise
            message = str(error).split(";\n", 1)[0]
            raise AppError(f"Cannot stream job {query.job!r} into sink {query.sink!r}: {message}") from error
        started.append(_Started(query, ProgressReader(query.name, handle), order))
    return started


def _watch(
    store: RunStore, run: Run, home: Home, started: list[_Started], stop: threading.Event, on_progress: OnProgress
) -> None:
    """Report and record until every query has ended; one that fails ends the others."""
    while any(one.reader.query.isActive for one in started):
        time.sleep(LOOK)
        if any(_failure(one) for one in started):
            stop.set()
        if stop.is_set():
            _stop_idle(started)
        _report(store, run, home, started, on_progress)
    _report(store, run, home, started, on_progress)
    if failure := next((found for one in started if (found := _failure(one))), None):
        raise failure


def _stop_idle(started: list[_Started]) -> None:
    """A query at work on a batch ends by itself after it; one that waits for events is stopped here."""
    for one in started:
        if one.reader.query.isActive and not one.reader.query.status["isTriggerActive"]:
            one.reader.query.stop()


def _failure(one: _Started) -> Exception | None:
    error = one.reader.query.exception() if not one.reader.query.isActive else None
    if error is None or StopBetweenBatches.__name__ in str(error):
        return None
    return RunError(
        f"Query {one.query.name!r} failed: {_cause(str(error))}", hint="Run it again to go on from the last batch."
    )


def _cause(text: str) -> str:
    """The line of Spark's message that says what happened."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    telling = [line for line in lines if "Error:" in line or "Exception:" in line]
    return (telling or lines or [text])[-1][:500]


def _report(store: RunStore, run: Run, home: Home, started: list[_Started], on_progress: OnProgress) -> None:
    progress = [one.reader.read() for one in started]
    for one in started:
        record_batches(store, run.id, one.query.name, home.checkpoint(run.app, run.id) / one.query.name, one.feeds)
    store.update(run.id, progress={"queries": [_plain(report) for report in progress]})
    on_progress(progress)


def _plain(report: QueryProgress) -> dict[str, Any]:
    return {**asdict(report), "watermark": report.watermark.isoformat() if report.watermark else None}
