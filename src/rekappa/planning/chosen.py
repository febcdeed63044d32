"""Which jobs a backfill is of: looked at before Spark starts, so that a typing error is told at once."""

from __future__ import annotations

from rekappa.app import App, Job
from rekappa.config.bind import queries
from rekappa.config.load import Loaded, require_production
from rekappa.errors import PlanError
from rekappa.planning.request import BackfillRequest


def chosen_jobs(app: App, loaded: Loaded, request: BackfillRequest) -> list[Job]:
    """The jobs to plan. Refuses names that are not there, and what is said of a job or sink that is left out."""
    require_production(loaded, "plan a backfill")
    writers = {query.sink: query.job for query in queries(loaded.config, app)}
    for kind, names, known in (
        ("job", (*request.jobs, *request.by_job), tuple(app.jobs)),
        ("sink", request.sinks, tuple(writers)),
    ):
        for name in names:
            if name not in known:
                raise PlanError(f"Cannot find {kind} {name!r} in app {app.name!r}", hint=f"It has: {', '.join(known)}.")
    wanted = {writers[sink] for sink in request.sinks} or set(app.jobs)
    chosen = [job for name, job in app.jobs.items() if name in wanted and (not request.jobs or name in request.jobs)]
    kept = {job.name for job in chosen}
    for what, name in (
        *((f"write sink {sink!r}", writers[sink]) for sink in request.sinks),
        *(("plan what is told of it", job) for job in request.by_job),
    ):
        if name not in kept:
            raise PlanError(f"Cannot {what}: job {name!r} is left out", hint="--job and --sink say which jobs run.")
    return chosen
