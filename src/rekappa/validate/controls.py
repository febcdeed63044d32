"""Control runs: kept code over a plan, into staging of its own, to settle why a backfill differs from production.

A control is a run in the store like any other: it can be killed and goes on, `rekappa runs` shows it, and a finished
one answers the same question again without running. It reads the archive and writes to staging only: where things
are, it takes from the configuration of the backfill; what is computed, from the kept code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from rekappa.app import App
from rekappa.config.bind import visiting_app
from rekappa.config.load import Loaded
from rekappa.errors import RekappaError, RunError
from rekappa.home import Home
from rekappa.plan.plan import Estimate, Plan
from rekappa.plan.store import plan_id
from rekappa.plan.store import save as save_plan
from rekappa.runs.code import kept_version
from rekappa.runs.stretches import Stretch, run_stretches
from rekappa.runs.work import PLAN, OnProgress
from rekappa.staging.staged import Staged, load_run
from rekappa.staging.tables import staging_table
from rekappa.store.code import Code
from rekappa.store.record import Kind, Run, Start, State, new_run_id
from rekappa.store.runs import RunStore
from rekappa.validate.production import NoControl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tell = Callable[[str], None]


class Role(StrEnum):
    """What a control shows."""

    CODE = "production's code"
    EXACT = "production's code over its micro-batches"
    EXACT_NEW = "the run's code over production's micro-batches"
    BULK = "in bulk, which drops nothing"
    LOOKUPS = "the run's code with the lookups that production had"
    KEEPING = "in production's micro-batches, dropping nothing"


@dataclass(frozen=True, slots=True)
class Control:
    """A finished control and where it wrote."""

    run: Run
    table: str


@contextmanager
def kept_app(home: Home, base: Loaded, code: Code, sink: str) -> Iterator[tuple[Loaded, App]]:
    """Kept code, ready to run for one sink, whose rows are told apart, paired and reduced as the backfill does it."""
    loaded = kept_version(home, code, base)
    if sink not in loaded.config.sinks:
        raise NoControl(f"code {code} has no sink {sink!r}")
    with visiting_app(loaded) as app:
        kept = loaded.config.sinks[sink]
        own = {"job": kept.job, "output_mode": kept.output_mode}
        only = {sink: base.config.sinks[sink].model_copy(update=own)}
        yield replace(loaded, config=loaded.config.with_sinks(only), elsewhere={}), app


def run_control(
    spark: SparkSession,
    staged: Staged,
    sink: str,
    role: Role,
    plan: Plan,
    stretches: Sequence[Stretch],
    tell: Tell = lambda text: None,
) -> Control:
    """Run the control, or what is left of it, by the plan that it began with; a finished one that read the same with
    the same code is answered as it is.

    Refuses with `NoControl`, saying why, if it could not be run to its end.
    """
    home, store = staged.home, RunStore.open(staged.home)
    asked = {
        "start": staged.run.spec["start"],
        "end": staged.run.spec["end"],
        "regions": list(staged.run.spec.get("regions") or ()),
        "control_of": staged.run.id,
        "role": role.value,
        "sinks": [sink],
        "modes": {job.name: job.mode.value for job in plan.jobs},
        "stretches": [stretch.as_json() for stretch in stretches],
        "plan": plan_id(_told_apart(plan)),
    }
    # As the store gives it back, so that the two can be held against each other.
    spec: dict[str, object] = json.loads(json.dumps(asked))
    run = _earlier(store, staged, spec)
    if run is not None and run.state is State.FINISHED:
        table = staging_table(staged.loaded.config, run.id, sink)
        if spark.catalog.tableExists(table):
            tell(f"{sink}: {role} was run already ({run.id})")
            return Control(run, table)
        run = None
    if run is None:
        run = Run(
            new_run_id(Kind.CONTROL),
            staged.run.app,
            Kind.CONTROL,
            staged.run.folder,
            spec={**spec, "owner": staged.loaded.config.owner},
        )
        save_plan(plan, home.checkpoint(run.app, run.id) / PLAN)
        first = 0
        for stretch in stretches:
            store.record_start(Start(run.id, "", first, stretch.code))
            first = stretch.until or 0
        store.create(run)
    table = staging_table(staged.loaded.config, run.id, sink)
    tell(f"{sink}: running {role} ({run.id})")
    try:
        run = continue_control(spark, home, run.id, staged.loaded)
    except RekappaError as error:
        raise NoControl(f"{role} could not be run ({run.id}): {error.message}") from error
    if run.state is not State.FINISHED:
        raise RunError(f"Cannot settle the differences: control {run.id} is {run.state}", hint="Validate again.")
    if not spark.catalog.tableExists(table):
        raise NoControl(f"{role} ({run.id}) wrote nothing at all")
    return Control(run, table)


def continue_control(
    spark: SparkSession,
    home: Home,
    run_id: str,
    base: Loaded | None = None,
    on_progress: OnProgress = lambda progress: None,
) -> Run:
    """Run what is left of a control. `base` is the configuration of the backfill that it is a control of."""
    store = RunStore.open(home)
    run = store.run(run_id)
    placed = base or load_run(home, store.run(str(run.spec["control_of"])))
    sink = str(run.spec["sinks"][0])
    stretches = [Stretch.from_json(value) for value in run.spec["stretches"]]
    return run_stretches(
        spark, home, run.id, stretches, lambda stretch: kept_app(home, placed, stretch.code, sink), on_progress
    )


def _told_apart(plan: Plan) -> Plan:
    """The plan without what may differ between two that read the same: an archive grows, estimates get better."""
    jobs = []
    for job in plan.jobs:
        sources = tuple(
            replace(
                source, snapshot=None if job.slices else source.snapshot, skipped_files=0, skipped_bytes=0,
                complete_until={}, newest=None, density=(),
            )
            for source in job.sources
        )  # fmt: skip
        lookups = tuple(replace(one, versions=0, first=None, calls=None) for one in job.lookups)
        jobs.append(replace(job, sources=sources, lookups=lookups, estimate=Estimate(0, 0), warnings=(), reason=""))
    return replace(plan, jobs=tuple(jobs))


def _earlier(store: RunStore, staged: Staged, spec: dict[str, object]) -> Run | None:
    """The newest control that asked the same: finished with the same plan, or one that can go on with its own."""
    for run in store.runs(staged.run.app, Kind.CONTROL):
        different = {name for name, value in spec.items() if run.spec.get(name) != value}
        if run.state is State.CANCELLED or different - {"plan"} or (different and run.state is State.FINISHED):
            continue
        if run.state.going:
            raise RunError(f"Cannot settle the differences: process {run.pid} is at work on control {run.id}")
        return run
    return None
