"""The jobs of a backfill that run over slices: every query a replay with a checkpoint of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.app import Job
from rekappa.config.bind import Query, queries
from rekappa.lookups.open import with_planned_lookups
from rekappa.plan.plan import JobPlan, Mode
from rekappa.replay.archives import archive_source
from rekappa.replay.closing import reached
from rekappa.replay.ordered import HoldBack, Signal, SliceProgress, run_slices
from rekappa.replay.sessions import cut_from
from rekappa.runs.work import Ended, Progress, Work, report
from rekappa.sinks.contract import BatchId, Sink
from rekappa.sources.open import open_batch
from rekappa.spark.calling import results_of
from rekappa.spark.probes import output_schemas
from rekappa.spark.session import plain
from rekappa.spark.state import PROVIDER
from rekappa.staging.tables import staging_sink
from rekappa.store.record import State, Wish
from rekappa.timeline import Window, format_instant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def run_slices_job(work: Work, job: JobPlan) -> bool:
    """Every query of the job over its slices, one after the other, each with a checkpoint of its own."""
    config = work.loaded.config
    own = [query for query in queries(config, work.app) if query.sink in job.sinks]
    sources = {planned.name: archive_source(work.loaded, work.home, planned) for planned in job.sources}
    planned = with_planned_lookups(work.spark, config, work.home, work.app.jobs[job.job], job.lookups)
    told = config.profiles.backfill.spark.get(PROVIDER)
    fresh = True
    for number, query in enumerate(own):
        checkpoint = work.folder / query.name
        fresh = fresh and reached(checkpoint).planned is None
        spec = config.sinks[query.sink]
        sink = staging_sink(config, work.run.id, query.sink, config.profiles.backfill.max_rows_per_second)
        outcome = run_slices(
            work.spark,
            work.plan_file,
            job.name,
            sources,
            lambda inputs, query=query: results_of(planned, inputs)[query.output],  # type: ignore[misc]
            _writer(work, query, sink),
            checkpoint,
            hold_back=HoldBack(work.plan.window, spec.event_time, superseding=spec.upserts),
            close=job.mode is not Mode.EXACT,
            output_mode=spec.output_mode,
            state_store=plain(told) if told else None,
            on_progress=_slice_progress(work, job, number, len(own)),
            control=lambda: _slice_control(work),
        )
        work.jobs[job.name].setdefault("queries", {})[query.name] = {
            "late_rows": outcome.late_rows,
            "peak_state_rows": outcome.peak_state_rows,
            "final_until": format_instant(outcome.watermark) if outcome.watermark else None,
        }
        if not outcome.finished:
            raise Ended(State.CANCELLED if work.claim.wish() is Wish.CANCEL else State.STOPPED)
        if not work.spark.catalog.tableExists(sink.table):
            # There was nothing to read. That is a result too: an empty one.
            schemas = {name: source.schema for name, source in sources.items()}
            sink.prepare(work.spark, output_schemas(work.spark, planned, schemas)[query.output])
        doubts = [
            moment
            for moment in (outcome.not_final_from, _cut_sessions(work, job, planned, query))
            if moment is not None
        ]
        work.jobs[job.name]["queries"][query.name]["not_final_from"] = format_instant(min(doubts)) if doubts else None
    return fresh


def _cut_sessions(work: Work, job: JobPlan, code: Job, query: Query) -> datetime | None:
    """From when on a session may have been cut by an edge of what was read: what its state forgot, it can't tell.

    None for a query that batches can't run, too: at the end of what was read the state itself has told.
    """
    from pyspark.errors import AnalysisException

    finality, reads = job.finality, job.reads
    if finality is None or finality.gap is None:
        return None
    if job.mode is Mode.EXACT:
        # What is known to be read begins with the warm-up, however far back a batch reached for one of the sources.
        reads = Window(work.plan.window.start - job.warm_up, reads.end)
        finality = finality.of_recorded()
    inputs = {
        source.name: open_batch(work.spark, work.loaded, work.home, source.name, reads, work.plan.regions)
        for source in job.sources
    }
    try:
        rows = code.results(inputs)[query.output]
        return cut_from(work.spark, rows, finality, reads, work.plan.window)
    except AnalysisException:
        return None


def _writer(work: Work, query: Query, sink: Sink) -> Callable[[DataFrame, int], None]:
    prepared: list[bool] = []

    def write(rows: DataFrame, number: int) -> None:
        if not prepared:
            sink.prepare(rows.sparkSession, rows.schema)
            prepared.append(True)
        sink.write(rows, BatchId(work.run.id, query.name, number))

    return write


def _slice_control(work: Work) -> Signal:
    told = work.claim.wish()
    if work.stop.is_set() or told is Wish.CANCEL:
        return Signal.STOP
    if told is Wish.PAUSE:
        work.pausing(True)
        return Signal.PAUSE
    work.pausing(False)
    work.claim.check()
    return Signal.GO


def _slice_progress(work: Work, job: JobPlan, number: int, count: int) -> Callable[[SliceProgress], None]:
    began, first = time.monotonic(), [-1]
    planned = sum(source.rows for source in job.sources)

    def tell(now: SliceProgress) -> None:
        if first[0] < 0:
            first[0] = now.done
        here = now.done - first[0]
        left = timedelta(seconds=(time.monotonic() - began) / here * (now.slices - now.done)) if here > 0 else None
        report(
            work,
            Progress(
                work.run.id, job.name, job.mode, number * now.slices + now.done, count * now.slices, now.rows,
                planned * count, now.late_rows, now.state_rows, now.reach, left, now.paused,
            ),
        )  # fmt: skip

    return tell
