"""A backfill: plan, record, run into staging; stopped, killed or paused, it goes on where its checkpoint is.

    run = run_backfill(spark, loaded, app, home, BackfillRequest(window))

It has its own checkpoints and its own staging tables, so it can run beside the live job of the same app.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING

from rekappa.app import App
from rekappa.config.load import Loaded, require_production
from rekappa.errors import LeaseLost, RekappaError, RunError
from rekappa.home import Home
from rekappa.plan.plan import JobPlan, Mode, Plan
from rekappa.plan.speeds import Speed
from rekappa.plan.store import load as load_plan
from rekappa.plan.store import save as save_plan
from rekappa.planning.make import make_plan
from rekappa.planning.request import BackfillRequest
from rekappa.runs.bulk_job import run_bulk_job
from rekappa.runs.code import code_of
from rekappa.runs.migration import require_publishable
from rekappa.runs.signals import stopping_on_signals
from rekappa.runs.work import PLAN, Ended, OnProgress, Progress, Work, save_progress
from rekappa.spark.failures import told
from rekappa.spark.launch import spark_log
from rekappa.staging.baseline import baseline_of
from rekappa.store.claim import Claim
from rekappa.store.leases import run_lease
from rekappa.store.record import Kind, Run, Start, State, Wish, new_run_id
from rekappa.store.runs import RunStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BackfillRequest", "Progress", "continue_backfill", "create_backfill", "run_backfill"]


def create_backfill(spark: SparkSession, loaded: Loaded, home: Home, request: BackfillRequest, plan: Plan) -> Run:
    """Record the run, with what production is now, and save its plan; nothing has run yet.

    The plan is saved first: a record always has one.
    """
    sinks = [sink for job in plan.jobs for sink in job.sinks]
    run = Run(
        id=new_run_id(Kind.BACKFILL),
        app=loaded.config.app,
        kind=Kind.BACKFILL,
        folder=str(loaded.folder),
        spec={
            **request.to_json(),
            "overrides": list(loaded.overrides),
            "modes": {job.name: job.mode for job in plan.jobs},
            "sinks": sinks,
            "owner": loaded.config.owner,
            "baseline": baseline_of(spark, loaded.config, sinks).as_json(),
            "archive": {source.table: source.snapshot for job in plan.jobs for source in job.sources},
        },
    )
    identity = save_plan(plan, home.checkpoint(run.app, run.id) / PLAN)
    store = RunStore.open(home)
    store.record_start(Start(run.id, "", 0, code_of(home, loaded)))
    return store.create(replace(run, spec={**run.spec, "plan": identity}))


def run_backfill(
    spark: SparkSession,
    loaded: Loaded,
    app: App,
    home: Home,
    request: BackfillRequest,
    *,
    plan: Plan | None = None,
    on_start: Callable[[Run], None] = lambda run: None,
    on_progress: OnProgress = lambda progress: None,
) -> Run:
    """Plan (unless a plan is given) and run a new backfill to its end; refused if production could not take it."""
    made = plan or make_plan(spark, loaded, app, home, request)
    require_publishable(spark, loaded, app, home, [sink for job in made.jobs for sink in job.sinks])
    run = create_backfill(spark, loaded, home, request, made)
    on_start(run)
    return continue_backfill(spark, loaded, app, home, run.id, on_progress=on_progress)


def continue_backfill(
    spark: SparkSession,
    loaded: Loaded,
    app: App,
    home: Home,
    run_id: str,
    *,
    on_progress: OnProgress = lambda progress: None,
) -> Run:
    """Run what is left of a backfill: all of a new one, the rest of one that was stopped, killed or failed."""
    require_production(loaded, f"continue run {run_id}")

    def carry_out(run: Run, claim: Claim, stop: Event) -> None:
        plan = load_plan(home.checkpoint(run.app, run.id) / PLAN)
        run_jobs(Work(spark, loaded, app, home, run, plan, claim, stop, on_progress))

    return carried_out(home, run_id, carry_out)


def carried_out(home: Home, run_id: str, carry_out: Callable[[Run, Claim, Event], None]) -> Run:
    """Take a run, do its work and record how it ended. Refuses one that is over or that another process has."""
    store = RunStore.open(home)
    run = store.run(run_id)
    if run.state in (State.FINISHED, State.CANCELLED):
        raise RunError(f"Cannot continue run {run.id}: it is {run.state}", hint="Start a new backfill.")
    with store.claim([run_lease(run.id)], f"continue run {run.id}") as claim:
        # Before it shows as running: from then on a wish to pause it stands.
        store.update(run.id, wish=Wish.GO)
        claim.begin(run.id, spark_log(home).name)
        try:
            kept = "The run keeps what is done: `rekappa resume RUN` makes the rest."
            with told(f"go on with run {run.id}", kept), stopping_on_signals() as stop:
                carry_out(store.run(run.id), claim, stop)
        except LeaseLost:
            raise
        except Ended as ended:
            claim.end(ended.state)
        except KeyboardInterrupt:
            claim.end(State.STOPPED)
            raise
        except BaseException as error:
            message = error.message if isinstance(error, RekappaError) else f"{type(error).__name__}: {error}"
            claim.end(State.FAILED, error=message)
            raise
        else:
            claim.end(State.FINISHED)
    return store.run(run.id)


def run_jobs(work: Work) -> None:
    """Every job of the work's plan, one after the other."""
    for job in work.plan.jobs:
        _run_job(work, job)


def _run_job(work: Work, job: JobPlan) -> None:
    began = time.monotonic()
    work.waited = False
    before = work.jobs.setdefault(job.name, {"job": job.name, "mode": job.mode.value})
    if job.mode is Mode.BULK:
        fresh = run_bulk_job(work, job)
    else:
        from rekappa.runs.slice_job import run_slices_job

        fresh = run_slices_job(work, job)
    seconds = time.monotonic() - began
    rows = sum(source.rows for source in job.sources)
    if fresh and rows and not work.waited:
        # Only a job that ran from its beginning in this process, without a pause, tells its speed.
        before["rows_per_second"] = round(rows / seconds)
        if work.run.kind is Kind.BACKFILL:
            speed = Speed(work.run.app, job.name, job.mode, job.state, rows, seconds, work.run.id)
            RunStore.open(work.home).record_speed(speed)
    save_progress(work)
