"""A run that several versions of an app's code work on, one after the other, as production did.

The plan's slices are production's micro-batches; each stretch of them is run by the code that ran it then, on one
checkpoint, so that each version takes over the state that the one before had built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING, Any

from rekappa.app import App
from rekappa.config.bind import queries
from rekappa.config.load import Loaded
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.plan.plan import JobPlan, Plan
from rekappa.plan.store import load as load_plan
from rekappa.plan.store import save as save_plan
from rekappa.runs.backfill import carried_out, run_jobs
from rekappa.runs.work import PLAN, OnProgress, Work
from rekappa.store.claim import Claim
from rekappa.store.code import Code
from rekappa.store.record import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Stretch:
    """`code` runs the slices below `until` that are not done yet: all that are left, if that is None."""

    code: Code
    until: int | None = None

    def as_json(self) -> dict[str, Any]:
        return {"code": self.code.as_json(), "until": self.until}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Stretch:
        return cls(Code.from_json(value["code"]), value["until"])


Opened = Callable[[Stretch], AbstractContextManager[tuple[Loaded, App]]]


def run_stretches(
    spark: SparkSession,
    home: Home,
    run_id: str,
    stretches: Sequence[Stretch],
    opened: Opened,
    on_progress: OnProgress = lambda progress: None,
) -> Run:
    """Run what is left of the run, each stretch by its own code. Stopped or killed, the same call goes on."""

    def carry_out(run: Run, claim: Claim, stop: Event) -> None:
        jobs: dict[str, dict[str, Any]] = {}
        folder = home.checkpoint(run.app, run.id)
        whole = load_plan(folder / PLAN)
        for number, stretch in enumerate(stretches):
            with opened(stretch) as (loaded, app):
                name = f"stretch_{number}.jsonl.gz"
                plan = _part(whole, stretch, loaded, app)
                save_plan(plan, folder / name)
                run_jobs(Work(spark, loaded, app, home, run, plan, claim, stop, on_progress, jobs, plan_name=name))

    return carried_out(home, run_id, carry_out)


def _part(plan: Plan, stretch: Stretch, loaded: Loaded, app: App) -> Plan:
    """The plan up to the end of the stretch, for jobs as this version of the code calls them."""
    return replace(plan, jobs=tuple(_job(job, stretch, loaded, app) for job in plan.jobs))


def _job(job: JobPlan, stretch: Stretch, loaded: Loaded, app: App) -> JobPlan:
    names = {query.job for query in queries(loaded.config, app) if query.sink in job.sinks}
    if len(names) != 1:
        raise RunError(
            f"Cannot run code {stretch.code} for sink {', '.join(job.sinks)}: "
            + ("it has no job for it" if not names else f"jobs {', '.join(sorted(names))} make it")
        )
    return replace(job, job=names.pop(), slices=job.slices[: stretch.until])
