"""Bulk replay: the job's function on batch DataFrames, chunk by chunk, each chunk one stamped commit per sink.

A chunk that was committed before a crash is found in the staging table and not made again, so a run can be
killed at any point: no row is lost, none is doubled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rekappa.app import App
from rekappa.config.bind import Query, queries
from rekappa.config.load import Loaded
from rekappa.home import Home
from rekappa.iceberg.commits import last_batch, load_table
from rekappa.lookups.open import with_planned_lookups
from rekappa.plan.chunks import whole_hours
from rekappa.plan.plan import Chunk, JobPlan, Plan
from rekappa.replay.archives import archive_source
from rekappa.replay.sessions import cut_from
from rekappa.replay.tuning import Facts, TunedSetting, arrow_settings, bulk_settings, unset_by
from rekappa.sinks.contract import BatchId
from rekappa.sources.open import open_batch
from rekappa.spark.calling import results_of
from rekappa.spark.names import quoted
from rekappa.spark.private import analysed, heap_bytes, observed
from rekappa.spark.shipping import is_local
from rekappa.spark.state import settings
from rekappa.spark.times import within
from rekappa.staging.tables import staging_sink, staging_table
from rekappa.staging.versions import refuse_contested
from rekappa.storage.location import Location
from rekappa.timeline import Window, format_instant, instant, parse_instant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CUT = "cut_sessions.jsonl"
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class BulkJob:
    """Everything that the chunks of one job share."""

    loaded: Loaded
    app: App
    home: Home
    run: str
    plan: Plan
    job: JobPlan

    @property
    def queries(self) -> tuple[Query, ...]:
        return tuple(query for query in queries(self.loaded.config, self.app) if query.sink in self.job.sinks)

    def event_time(self, query: Query) -> str | None:
        return self.loaded.config.sinks[query.sink].event_time


def committed(spark: SparkSession, bulk: BulkJob) -> int:
    """How many chunks are in staging, for all of the job's sinks: what a resumed run need not do."""
    config = bulk.loaded.config
    counts = []
    for query in bulk.queries:
        table = staging_table(config, bulk.run, query.sink)
        if not spark.catalog.tableExists(table):
            return 0
        newest = last_batch(spark, table, BatchId(bulk.run, query.name, 0).writer)
        counts.append(0 if newest is None else newest + 1)
    return min(counts, default=0)


def run_bulk(
    spark: SparkSession,
    bulk: BulkJob,
    *,
    attempt: Callable[[Chunk, Callable[[], None]], None] = lambda chunk, work: work(),
    before: Callable[[Chunk], bool] = lambda chunk: True,
    after: Callable[[Chunk], None] = lambda chunk: None,
) -> bool:
    """Make every chunk that is not in staging yet, in order; answer whether all are done.

    `before` is asked ahead of each chunk and may end the run by answering False. `attempt` runs the chunk's
    work, and may run it again: a chunk that got through is recognised. `after` is told of each finished chunk.
    """
    chunks = bulk.job.chunks
    share = 1 / max(len(chunks), 1)
    sizes = {source.name: int(source.bytes * share) for source in bulk.job.sources}
    profile = bulk.loaded.config.profiles.backfill.spark
    chosen = bulk_settings(_facts(spark, sizes))
    if bulk.job.by_slice:
        chosen += through_python(bulk.job)
    with settings(spark, unset_by(chosen, profile)):
        for chunk in chunks[committed(spark, bulk) :]:
            if not before(chunk):
                return False
            attempt(chunk, lambda chunk=chunk: make_chunk(spark, bulk, chunk))  # type: ignore[misc]
            after(chunk)
    return True


def through_python(job: JobPlan) -> tuple[TunedSetting, ...]:
    """What a job runs with that goes slice by slice."""
    return arrow_settings(sum(one.rows for one in job.sources), sum(one.bytes for one in job.sources))


def make_chunk(spark: SparkSession, bulk: BulkJob, chunk: Chunk) -> None:
    """One chunk into staging: every sink of the job, each in one commit."""
    made: dict[Window, Mapping[str, DataFrame]] = {}
    for query in bulk.queries:
        event_time = bulk.event_time(query)
        if bulk.job.by_slice:
            _make_in_slice_order(spark, bulk, chunk, query)
            continue
        # Without an event time the window is ingestion time: what is read is what comes out.
        reads = whole_hours(chunk.reads) if event_time else chunk.output
        if reads not in made:
            made[reads] = _results(spark, bulk, reads)
        _note_cut_sessions(spark, bulk, query, made[reads][query.output], reads, chunk.output)
        _stage(spark, bulk, chunk, query, in_output(made[reads][query.output], event_time, chunk.output))


def _stage(spark: SparkSession, bulk: BulkJob, chunk: Chunk, query: Query, rows: DataFrame) -> None:
    config = bulk.loaded.config
    cap = config.profiles.backfill.max_rows_per_second
    sink = staging_sink(config, bulk.run, query.sink, cap, ordered=False)
    sink.prepare(spark, rows.schema)
    sink.write(rows, BatchId(bulk.run, query.name, chunk.number))


def _make_in_slice_order(spark: SparkSession, bulk: BulkJob, chunk: Chunk, query: Query) -> None:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    from rekappa.replay.custom.batches import BATCH
    from rekappa.replay.custom.bykey import LATE
    from rekappa.replay.custom.run import may_change, sliced_rows

    event_time = bulk.event_time(query)
    assert event_time is not None, "what is planned by slice has an event time"
    late, seen = Observation(), Observation()
    sources = {source.name: archive_source(bulk.loaded, bulk.home, source) for source in bulk.job.sources}
    job = bulk.app.jobs[bulk.job.job]
    rows, marks = sliced_rows(spark, sources, bulk.plan, bulk.job, job, query.output, late=late)
    kept = in_output(rows, event_time, chunk.output)
    kept = kept.observe(seen, F.min(may_change(kept, bulk.job, event_time, marks)).alias("first"))
    # What is staged is never thought more final than it is: until it is known, nothing of it is.
    _note(bulk, query, chunk.output.start)
    _stage(spark, bulk, chunk, query, kept.drop(BATCH))
    if observed(seen):
        first = seen.get["first"]
        dropped = int(late.get[LATE]) if observed(late) else 0
        _note(bulk, query, None if first is None else instant(first), late_rows=dropped)


def _note_cut_sessions(
    spark: SparkSession, bulk: BulkJob, query: Query, rows: DataFrame, reads: Window, output: Window
) -> None:
    """Said before the chunk is written: what is in staging is never thought more final than it is."""
    finality = bulk.job.finality
    if finality is None or finality.gap is None:
        return
    moment = cut_from(spark, rows, finality, reads, output)
    if moment is not None:
        _note(bulk, query, moment)


def _note(bulk: BulkJob, query: Query, moment: datetime | None, *, late_rows: int = 0) -> None:
    """From when on a query's rows may change, and how many events were dropped as late."""
    told = format_instant(moment) if moment is not None else None
    line = {"query": query.name, "from": told, "late_rows": late_rows, "all": bulk.job.by_slice}
    notes = _cut_notes(bulk)
    known = notes.read_text() if notes.exists() else ""
    notes.write(known + json.dumps(line) + "\n")


def _cut_notes(bulk: BulkJob) -> Location:
    return bulk.home.checkpoint(bulk.plan.app, bulk.run) / CUT


def noted(bulk: BulkJob) -> dict[str, dict[str, Any]]:
    """Of each query what its chunks noted, in all attempts: the sink time from which its rows may change, if any may
    (`not_final_from`), and how many events were dropped as late (`late_rows`)."""
    found: dict[str, dict[str, Any]] = {}
    notes = _cut_notes(bulk)
    for line in notes.read_text().splitlines() if notes.exists() else ():
        note = json.loads(line)
        before = found.get(note["query"], {})
        moments = [note["from"]]
        if not note.get("all"):
            # What is said of all of a query's rows takes the place of what was said before.
            moments.append(before.get("not_final_from"))
        earliest = min((parse_instant(text) for text in moments if text), default=None)
        found[note["query"]] = {
            "not_final_from": None if earliest is None else format_instant(earliest),
            "late_rows": note.get("late_rows", 0),
        }
    return found


def _results(spark: SparkSession, bulk: BulkJob, reads: Window) -> Mapping[str, DataFrame]:
    inputs = {
        source.name: open_batch(spark, bulk.loaded, bulk.home, source.name, reads, bulk.plan.regions, planned=source)
        for source in bulk.job.sources
    }
    config, own = bulk.loaded.config, bulk.app.jobs[bulk.job.job]
    job = with_planned_lookups(spark, config, bulk.home, own, bulk.job.lookups)
    return results_of(job, inputs)


def in_output(rows: DataFrame, event_time: str | None, output: Window) -> DataFrame:
    """The rows that belong to the output: all of them without an event time, the window being then what is read."""
    if event_time is None:
        return rows
    from pyspark.sql import functions as F

    inside = within(F.col(quoted(event_time)), output)
    if "session_window" in analysed(rows).toString():
        # Spark would push the filter below the aggregate, where an event's own time stands for its session's start:
        # sessions would be cut at the window's edges. It pushes nothing that is not deterministic.
        inside = F.when(F.spark_partition_id() >= 0, inside)
    return rows.where(inside)


def refuse_unordered(spark: SparkSession, bulk: BulkJob) -> None:
    """Refuse what was staged for sinks that upsert if it depends on an order, which bulk does not keep."""
    config = bulk.loaded.config
    for query in bulk.queries:
        spec = config.sinks[query.sink]
        table = staging_table(config, bulk.run, query.sink)
        if spec.upserts and spark.catalog.tableExists(table):
            refuse_contested(spark.table(table), spec.key, query.sink, spec.version)


def staged_rows(spark: SparkSession, bulk: BulkJob) -> Mapping[str, int]:
    """Rows in staging per sink, from the tables' own count."""
    found = {}
    for query in bulk.queries:
        table = staging_table(bulk.loaded.config, bulk.run, query.sink)
        if spark.catalog.tableExists(table):
            snapshot = load_table(spark, table).currentSnapshot()
            found[query.sink] = int(snapshot.summary().get("total-records") or 0) if snapshot else 0
    return found


def _facts(spark: SparkSession, sizes: Mapping[str, int]) -> Facts:
    context = spark.sparkContext
    heap, cores = heap_bytes(spark), max(context.defaultParallelism, 1)
    if is_local(context.master or "local"):
        return Facts(sizes, cores, heap)
    java_context: Any = context._jsc
    executors = max(java_context.sc().getExecutorMemoryStatus().size() - 1, 1)
    memory = int(java_context.sc().conf().getSizeAsBytes("spark.executor.memory", "1g"))
    # What is sent to all executors is put together in the driver first.
    return Facts(sizes, cores, min(heap, memory), -(-cores // executors))
