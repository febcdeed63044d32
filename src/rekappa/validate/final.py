"""What a backfill's plan says of its output: from when on it was not final, which columns no replay gives exactly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rekappa.errors import PlanError, ValidationError
from rekappa.plan.plan import JobPlan
from rekappa.plan.shape import Tolerance
from rekappa.plan.store import PlanFile
from rekappa.planning.production import production_runs
from rekappa.runs.work import PLAN
from rekappa.store.runs import RunStore
from rekappa.timeline import Window, parse_instant

if TYPE_CHECKING:
    from rekappa.staging.staged import Staged


def open_from(staged: Staged, sink: str) -> datetime | None:
    """The event time from which rows of this sink could still have changed; None if all were final."""
    run = staged.run
    try:
        plan = PlanFile(staged.home.checkpoint(run.app, run.id) / PLAN).head
    except PlanError:
        return None
    jobs = [job for job in plan.jobs if sink in job.sinks]
    moments = [moment for job in jobs for moment in open_ends(job, plan.window, plan.regions)]
    for entry in _entries(run.progress.get("jobs")):
        if entry.get("job") in {job.name for job in jobs}:
            known = (entry.get("queries") or {}).values()
            reached = [query.get(name) for query in known for name in ("final_until", "not_final_from")]
            moments += [parse_instant(text) for text in reached if text]
    moments += _not_yet_written(staged, sink, jobs)
    early = [moment for moment in moments if moment < plan.window.end]
    return max(min(early), plan.window.start) if early else None


def final_window(staged: Staged) -> Window:
    """The part of the window in which every sink's rows are final; refuses where there is none, or nobody can tell."""
    timeless = [one.name for one in staged.sinks if one.sink.key and one.sink.event_time is None]
    if timeless:
        raise ValidationError(
            f"Cannot tell the final rows of sink {', '.join(timeless)}: it names no event time",
            hint=f"Name the column that says when a row happened:  sinks.{timeless[0]}.event_time",
        )
    moments = [moment for one in staged.sinks if (moment := open_from(staged, one.name)) is not None]
    until = min([staged.window.end, *moments])
    if until <= staged.window.start:
        raise ValidationError(
            f"Cannot validate the final part of {staged.window}: nothing in it was final when the backfill ended",
            hint="Backfill again when the archive has more, or with a longer --drain.",
        )
    return Window(staged.window.start, until)


def _not_yet_written(staged: Staged, sink: str, jobs: Iterable[JobPlan]) -> list[datetime]:
    """From when on production itself may still hold rows in its state: its watermark has not passed them."""
    spec = staged.loaded.config.sinks[sink]
    waiting = [job.finality for job in jobs if job.finality is not None and job.finality.held]
    if spec.output_mode != "append" or not waiting:
        return []
    store = RunStore.open(staged.home)
    for run in production_runs(store, staged.loaded, sink):
        marks = [batch.watermark for batch in store.batches(run.id, sink) if batch.watermark is not None]
        if marks:
            return [one.written_until(max(marks)) for one in waiting]
    return []


def tolerances(staged: Staged, sink: str) -> Mapping[str, Tolerance]:
    """The columns of this sink that are equal only up to order or rounding, by the run's plan."""
    run = staged.run
    try:
        plan = PlanFile(staged.home.checkpoint(run.app, run.id) / PLAN).head
    except PlanError:
        return {}
    return {name: how for job in plan.jobs for name, how in job.tolerances.get(sink, {}).items()}


def open_ends(job: JobPlan, window: Window, regions: Iterable[str] = ()) -> list[datetime]:
    """For each source whose archive ends inside what the job reads: where its output stops being final."""
    wanted = set(regions)
    found = []
    for source in job.sources:
        known = [until for region, until in source.complete_until.items() if not wanted or region in wanted]
        if known and min(known) < job.reads.end:
            found.append(min(known) - (job.reads.end - window.end))
    return found


def _entries(jobs: Any) -> list[dict[str, Any]]:
    if isinstance(jobs, dict):
        return list(jobs.values())
    return list(jobs) if isinstance(jobs, list) else []
