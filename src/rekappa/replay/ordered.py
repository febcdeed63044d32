"""Running a job over planned slices, one micro-batch each: the driver of the ordered, strict and exact modes.

    outcome = run_slices(spark, plan_path, "sessions", archive, job_result, write, checkpoint)

Everything that a resumed run needs is in the checkpoint: after a crash at any point the same call goes on, and a
batch whose write was cut short is written again under the same number, which sinks take for the same batch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from rekappa.errors import RekappaError, SourceError, WorkFailed
from rekappa.plan.store import PlanFile
from rekappa.replay.closing import FORCED, move_watermark, reached, set_watermark
from rekappa.replay.journal import BatchNote, Journal
from rekappa.replay.readers import with_readers
from rekappa.replay.state import LOG_FILES, forget, log_settings, state_settings
from rekappa.replay.stream import AboutTo, replay_stream, slice_scan
from rekappa.replay.values import ArchiveSource, HoldBack, Signal, SliceOutcome, SliceProgress
from rekappa.spark.computing import compute
from rekappa.spark.failures import Again, read_failure
from rekappa.spark.state import settings
from rekappa.storage.location import Location
from rekappa.timeline import Window, instant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = [
    "ArchiveSource",
    "HoldBack",
    "Signal",
    "SliceOutcome",
    "SliceProgress",
    "run_slices",
]

LOOK = 0.05
RETRIES = 2


class _Stopped(Exception):
    """Raised into the query to end it before a slice."""


def run_slices(
    spark: SparkSession,
    plan: Location,
    job: str,
    sources: Mapping[str, ArchiveSource],
    result: Callable[[Mapping[str, DataFrame]], DataFrame],
    write: Callable[[DataFrame, int], None],
    checkpoint: Location,
    *,
    hold_back: HoldBack | None = None,
    close: bool = True,
    closing_watermark: datetime | None = None,
    output_mode: str = "append",
    state_store: str | None = None,
    settings: Mapping[str, str] | None = None,
    on_progress: Callable[[SliceProgress], None] = lambda progress: None,
    control: Callable[[], Signal] = lambda: Signal.GO,
    retries: int = RETRIES,
) -> SliceOutcome:
    """Run one output of a job over all slices of its plan, from where the checkpoint is.

    `write` gets the rows of a batch and its number; it may be called again with both after a crash. With `close`, the
    watermark is then moved to where the plan says that all is settled, and then to `closing_watermark` (a year past
    what is read) so that all state comes out; rows of the window that only the last step brought out may not be final.
    A slice that fails is tried again `retries` times; then the error names slice and cause and the run stays resumable.
    """
    run = _SliceRun(spark, PlanFile(plan), job, sources, result, write, checkpoint, hold_back, on_progress, control)
    run.output_mode, run.state_store, run.settings = output_mode, state_store, dict(settings or {})
    if close:
        planned = run.plan.head.job(job)
        run.closing = closing_watermark or planned.reads.end + timedelta(days=366)
        run.settled = planned.finality.settled(planned.reads) if planned.finality is not None else None
    failures: dict[int, int] = {}
    while not run.done:
        try:
            run.advance()
        except _Stopped:
            return run.outcome(finished=False)
        except Exception as error:
            stood = reached(checkpoint).planned or 0
            failures[stood] = failures.get(stood, 0) + 1
            if failures[stood] > retries or read_failure(run.cause or error).again is Again.USELESS:
                raise run.explained(error) from error
    return run.outcome(finished=True)


class _SliceRun:
    """One call of `run_slices`: what it was given, and the query while it runs."""

    def __init__(
        self,
        spark: SparkSession,
        plan: PlanFile,
        job: str,
        sources: Mapping[str, ArchiveSource],
        result: Callable[[Mapping[str, DataFrame]], DataFrame],
        write: Callable[[DataFrame, int], None],
        checkpoint: Location,
        hold_back: HoldBack | None,
        on_progress: Callable[[SliceProgress], None],
        control: Callable[[], Signal],
    ) -> None:
        self.spark, self.plan, self.job, self.sources = spark, plan, job, sources
        self.result, self.write, self.checkpoint = result, write, checkpoint
        self.hold_back, self.on_progress, self.control = hold_back, on_progress, control
        self.count = plan.slice_count(job)
        self.journal = Journal(checkpoint / "replay")
        self.output_mode = "append"
        self.state_store: str | None = None
        self.settings: dict[str, str] = {}
        self.closing: datetime | None = None
        self.settled: datetime | None = None
        self.cause: BaseException | None = None
        self._started: SimpleQueue[StreamingQuery] = SimpleQueue()

    @property
    def last(self) -> int:
        """The number of the last batch: batch n reads slice n, and the closing ones come after."""
        return self.count - 1 if self.closing is None or not self.count else self.count - 1 + FORCED

    @property
    def done(self) -> bool:
        return not self.count or (self.checkpoint / "commits" / str(self.last)).exists()

    def advance(self) -> None:
        """Run the query until the last batch is committed."""
        self.cause, self._started = None, SimpleQueue()
        rows = self._query()
        chosen = state_settings(rows, self.state_store, self.spark.sparkContext.defaultParallelism)
        with settings(self.spark, log_settings(chosen, self.checkpoint.uri) | chosen | self.settings):
            query = (
                rows.writeStream.foreachBatch(self._batch)
                .outputMode(self.output_mode)
                .option("checkpointLocation", self.checkpoint.uri)
                .trigger(processingTime="0 seconds")
                .start()
            )
        self._started.put(query)
        try:
            while True:
                ended = query.awaitTermination(LOOK)  # type: ignore[arg-type]  # fractions of a second are taken
                self._note(query)
                # Its report comes after its commit: until then there is no need to ask the storage, which may be far.
                if (ended or self.journal.newest >= self.last) and self.done:
                    break
                if ended:
                    raise WorkFailed(f"Cannot go on with job {self.job!r}: its query ended by itself")
            # The batch's figures come a moment after its commit.
            deadline = time.monotonic() + 2
            while self.journal.newest < self.last and time.monotonic() < deadline:
                time.sleep(LOOK / 5)
                self._note(query)
        except Exception:
            if isinstance(self.cause, _Stopped):
                raise self.cause from None
            raise
        finally:
            self._note(query)
            query.stop()

    def outcome(self, *, finished: bool) -> SliceOutcome:
        at = reached(self.checkpoint)
        return SliceOutcome(
            finished=finished,
            slices=at.slices if at.settled else max(0, at.slices - 1),
            rows=self.journal.rows,
            late_rows=self.journal.late_rows,
            peak_state_rows=self.journal.peak_state_rows,
            watermark=self.journal.watermark or at.watermark,
            not_final_from=self.journal.not_final_from,
        )

    def explained(self, error: BaseException) -> RekappaError:
        """The error that names slice, file and cause."""
        if isinstance(self.cause, RekappaError):
            return self.cause
        if isinstance(error, RekappaError):
            return error
        at = reached(self.checkpoint)
        number = min(max(at.slices - 1, 0), max(self.count - 1, 0))
        damaged = self._unreadable(number)
        if damaged is not None:
            path, cause = damaged
            return SourceError(
                f"Cannot read slice {number}: file {path}: {cause}",
                hint="The run can be resumed once the file is back. If the table has changed since, plan again.",
            )
        found = read_failure(self.cause or error)
        return WorkFailed(
            f"Cannot run slice {number} of {self.count} of job {self.job!r}: {found.cause}",
            hint=f"{found.remedy} The run can be resumed from this slice.".strip(),
        )

    def _query(self) -> DataFrame:
        """The job's result on streams of the plan's slices."""
        planned = self.plan.head.job(self.job)
        recorded = bool(self.count) and self.plan.slice(self.job, 0).watermark is not None
        about_to = AboutTo(self._read if recorded else None, None if self.closing is None else self._close)
        inputs = {
            name: replay_stream(self.spark, self.plan, self.job, name, one, about_to)
            for name, one in self.sources.items()
        }
        rows = self.result(inputs)
        if all(source.readers == 1 for source in planned.sources):
            return rows
        return with_readers(self.spark, rows, self.plan, self.job, self.sources, about_to)

    def _running(self) -> StreamingQuery:
        """The query, for the sources that Spark calls on a thread of its own; waits until it has been started."""
        query = self._started.get()
        self._started.put(query)
        return query

    def _read(self, number: int) -> None:
        """Called by each source as Spark is about to begin the batch of a slice that production ran."""
        watermark = self.plan.slice(self.job, number).watermark
        if watermark is not None:
            set_watermark(self._running(), watermark)

    def _close(self, step: int) -> None:
        """Called by each source as Spark is about to begin a closing batch."""
        assert self.closing is not None, "only asked for where there is something to close"
        target = self.closing if step == FORCED else self.settled
        if target is None:
            return
        before = move_watermark(self._running(), min(target, self.closing))
        self.journal.note_watermark(before if step == FORCED or before is None else max(before, target))

    def _unreadable(self, number: int) -> tuple[str, str] | None:
        """The first file of a slice that can't be read, and why: Spark's own errors do not always tell."""
        for name, one in self.sources.items():
            scan = slice_scan(self.spark, self.plan, self.job, name, one, one.schema)
            found = scan.unreadable(self.plan.slice(self.job, number).source(name)) if self.count else None
            if found is not None:
                return found
        return None

    def _batch(self, rows: DataFrame, number: int) -> None:
        """One micro-batch, called by Spark on a thread of its own."""
        try:
            forget(rows.sparkSession, LOG_FILES)
            self._wait()
            held = rows
            if self.hold_back is not None:
                kept = self.hold_back.of(rows, self._read_last(number))
                if kept is None:
                    # The rows must still be computed: that is what builds the state.
                    compute(rows)
                    return
                held = kept
            if self.closing is not None and number == self.last:
                self._write_forced(held, number)
            else:
                self.write(held, number)
        except BaseException as error:
            self.cause = error
            raise

    def _write_forced(self, rows: DataFrame, number: int) -> None:
        """The rows of the window that only the end of the replay brought out, and from when on there are any."""
        from pyspark.sql import functions as F

        kept = rows.persist()
        try:
            column = self.hold_back.column if self.hold_back is not None else None
            if column is not None:
                planned = self.plan.head.job(self.job)
                sure = planned.finality.final_until(planned.reads) if planned.finality is not None else None
                doubtful = kept if sure is None else kept.where(F.col(column) >= F.lit(sure))
                first = doubtful.agg(F.unix_micros(F.min(F.col(column).cast("timestamp")))).first()
                if first is not None and first[0] is not None:
                    self.journal.note_not_final(instant(first[0]))
            self.write(kept, number)
        finally:
            kept.unpersist()

    def _wait(self) -> None:
        told = self.control()
        while told is Signal.PAUSE:
            self._tell(paused=True)
            time.sleep(4 * LOOK)
            told = self.control()
        if told is Signal.STOP:
            raise _Stopped

    def _reach(self, batch: int) -> Window | None:
        """The stretch that a batch reads; slices and batches are numbered alike, the closing batches come after."""
        return self.plan.slice(self.job, batch).reach if batch < self.count else None

    def _read_last(self, batch: int) -> Window | None:
        """What was read when a batch's rows came out: its own slice or, if that is empty, the last that was not.

        None for the closing batch: what it brings out was forced, not read.
        """
        if batch >= self.count:
            return None
        return next((reach for at in range(batch, -1, -1) if (reach := self._reach(at)) is not None), None)

    def _note(self, query: StreamingQuery) -> None:
        """Take over Spark's reports on the batches since the last look."""
        reports: Any = query._jsq.recentProgress()
        fresh: list[BatchNote] = []
        for at in range(len(reports) - 1, -1, -1):
            if reports[at].batchId() <= self.journal.newest:
                break
            note = BatchNote.of(json.loads(reports[at].json()))
            if note is not None:
                fresh.append(note)
        for note in reversed(fresh):
            self.journal.add(note)
        if fresh:
            self._tell()

    def _tell(self, *, paused: bool = False) -> None:
        last = self.journal.last
        done = min(self.journal.newest + 1, self.count)
        reach = self._reach(done - 1) if done else None
        self.on_progress(
            SliceProgress(
                done=done,
                slices=self.count,
                rows=self.journal.rows,
                late_rows=self.journal.late_rows,
                state_rows=last.state_rows if last else 0,
                watermark=last.watermark if last else None,
                reach=reach.end if reach else None,
                paused=paused,
            )
        )
