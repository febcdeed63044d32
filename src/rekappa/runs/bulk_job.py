"""The bulk jobs of a backfill: chunk by chunk, with retries and a word on how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

from rekappa.plan.plan import Chunk, JobPlan
from rekappa.replay.bulk import BulkJob, committed, noted, refuse_unordered, run_bulk, staged_rows
from rekappa.runs.work import Progress, Work, go_on, report, with_retries


def run_bulk_job(work: Work, job: JobPlan) -> bool:
    bulk = BulkJob(work.loaded, work.app, work.home, work.run.id, work.plan, job)
    rows = sum(source.rows for source in job.sources)
    count = len(job.chunks)
    first = committed(work.spark, bulk)
    began = time.monotonic()

    def tell(done: int, paused: bool = False) -> None:
        here = done - first
        left = timedelta(seconds=(time.monotonic() - began) / here * (count - done)) if here > 0 else None
        reached = job.chunks[done - 1].output.end if done else None
        report(
            work,
            Progress(
                work.run.id, job.job, job.mode, done, count, rows * done // max(count, 1), rows,
                reached=reached, left=left, paused=paused,
            ),
        )  # fmt: skip

    def attempt(chunk: Chunk, make: Callable[[], None]) -> None:
        what = f"chunk {chunk.number + 1} of {count} ({chunk.output}) of job {job.job!r}"
        with_retries(what, make)

    tell(first)
    run_bulk(
        work.spark,
        bulk,
        attempt=attempt,
        before=lambda chunk: go_on(work, lambda: tell(chunk.number, paused=True)),
        after=lambda chunk: tell(chunk.number + 1),
    )
    refuse_unordered(work.spark, bulk)
    work.jobs[job.job]["written"] = dict(staged_rows(work.spark, bulk))
    for query, told in noted(bulk).items():
        work.jobs[job.job].setdefault("queries", {})[query] = told
    return first == 0
