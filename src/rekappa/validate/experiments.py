"""The experiments that can be made about one sink of a backfill: plans for control runs, and their rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from rekappa.config.bind import queries
from rekappa.config.targets import target_of
from rekappa.errors import RekappaError
from rekappa.lookups.then import differs
from rekappa.plan.plan import JobPlan, LookupPlan, Mode, Plan
from rekappa.plan.recorded import NO_WATERMARK
from rekappa.plan.store import load as load_plan
from rekappa.planning.make import make_plan
from rekappa.planning.production import production_runs
from rekappa.planning.request import BackfillRequest
from rekappa.runs.stretches import Stretch
from rekappa.runs.work import PLAN
from rekappa.sinks.changes import SPARK_TAKES
from rekappa.staging.staged import Staged, StagedSink
from rekappa.store.code import Code
from rekappa.store.record import Run
from rekappa.store.runs import RunStore
from rekappa.validate.controls import Control, Role, kept_app, run_control
from rekappa.validate.production import NoControl, same_code, stretches, versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Production:
    """The live run that made the window, and the code it did so with, stretch by stretch of the exact plan.

    `plan` is None where one code ran all along, so that nobody had to look which batches the window needed.
    """

    run: Run
    stretches: tuple[Stretch, ...]
    plan: Plan | None = None

    @property
    def code(self) -> Code | None:
        """The one code that made the window; None if there were several."""
        codes = [one.code for one in self.stretches]
        return codes[0] if all(same_code(codes[0], code) for code in codes) else None


@dataclass
class Experiments:
    """What can be asked about one sink. Each answer is a run; one that can't be had raises `NoControl`."""

    spark: SparkSession
    staged: Staged
    sink: StagedSink
    live_run: str | None = None
    tell: Tell = lambda text: None
    notes: list[str] = field(default_factory=list)
    controls: list[Control] = field(default_factory=list)

    @cached_property
    def plan(self) -> Plan:
        run = self.staged.run
        try:
            return load_plan(self.staged.home.checkpoint(run.app, run.id) / PLAN)
        except RekappaError as error:
            raise NoControl(f"the plan of the run can't be used: {error.message}") from error

    @cached_property
    def part(self) -> JobPlan:
        """The run's own plan for this sink."""
        for job in self.plan.jobs:
            if self.sink.name in job.sinks:
                if job.chance:
                    raise NoControl(f"the job uses {', '.join(job.chance)}: what it computes differs in every run")
                return job
        raise NoControl(f"the plan of the run has no part for sink {self.sink.name!r}")

    @cached_property
    def own(self) -> Code:
        """The code of the run itself."""
        starts = RunStore.open(self.staged.home).starts(self.staged.run.id)
        if not starts or starts[0].code.hash is None:
            raise NoControl("the code of the run itself was not kept")
        return starts[0].code

    @cached_property
    def request(self) -> BackfillRequest:
        told = BackfillRequest.from_json(self.staged.run.spec).of_job(self.part.job)
        return replace(told, jobs=(), sinks=(), allow_incomplete=True)

    @cached_property
    def production(self) -> Production:
        """The newest live run that wrote to the sink's target and read events of the window."""
        store = RunStore.open(self.staged.home)
        runs = production_runs(store, self.staged.loaded, self.sink.name, self.live_run)
        if not runs:
            target = target_of(self.staged.loaded.config.sinks[self.sink.name])
            raise NoControl(f"no live run is recorded that wrote to {target}: production's code is not known")
        known = {run.id: versions(store.starts(run.id, self.sink.name)) for run in runs}
        if len(runs) == 1 and len(known[runs[0].id]) == 1:
            return Production(runs[0], (Stretch(known[runs[0].id][0].code),))
        why = ""
        for run in runs:
            batches = store.batches(run.id, self.sink.name)
            try:
                plan = self._exact_plan(run, [version.code for version in known[run.id]])
            except RekappaError as error:
                why = why or f": {error.message}"
                continue
            part = _part_of(plan, self.sink.name)
            return Production(run, tuple(stretches(part.slices, batches, known[run.id])), plan)
        raise NoControl(f"which code made the window is not known{why}")

    def with_code(self, code: Code) -> Control:
        """A code of production's in the run's own mode, over the run's own plan where that fits it."""
        plan = self._planned(code, replace(self.request, mode=self.part.mode))
        made = _part_of(plan, self.sink.name)
        wider = max(made.warm_up, self.part.warm_up), max(made.drain, self.part.drain)
        if {one.name for one in made.sources} != {one.name for one in self.part.sources}:
            self.notes.append("production's code reads other sources: its control has a plan of its own")
        elif wider == (self.part.warm_up, self.part.drain):
            own = replace(self.part, job=made.job, sinks=(self.sink.name,), query=None, lookups=made.lookups)
            plan = replace(self.plan, jobs=(own,))
        else:
            self.notes.append("production's code needs wider margins: its control has a plan of its own")
            plan = self._planned(code, self._wider(*wider))
        return self._run(Role.CODE, plan, [Stretch(code)])

    def exact(self) -> Control:
        """Production's code, each version over its own stretch, over production's own micro-batches."""
        plan, parts = self._recorded
        return self._run(Role.EXACT, plan, parts)

    def exact_new(self) -> Control:
        """The run's own code over production's micro-batches."""
        return self._run(Role.EXACT_NEW, self._recorded[0], [Stretch(self.own)])

    def keeping(self, code: Code) -> Control:
        """A code over production's micro-batches with a watermark that stands still until the end: nothing is late."""
        plan = self._recorded[0]
        part = _part_of(plan, self.sink.name)
        slices = tuple(replace(one, watermark=NO_WATERMARK) for one in part.slices)
        kept = replace(part, mode=Mode.STRICT, slices=slices)
        return self._run(Role.KEEPING, replace(plan, jobs=(kept,)), [Stretch(code)])

    def bulk(self, code: Code) -> Control:
        """A code in bulk mode, where nothing is dropped as late."""
        wide = self._wider(self.part.warm_up, self.part.drain)
        plan = self._planned(code, replace(wide, mode=Mode.BULK))
        if _part_of(plan, self.sink.name).by_slice:
            raise NoControl("its state goes slice by slice, so that bulk drops late events as well")
        return self._run(Role.BULK, plan, [Stretch(code)])

    @cached_property
    def then(self) -> Mapping[str, LookupPlan]:
        """The lookups that were changed after production had read them, as they were before; controls use these."""
        part = self.part
        if part.mode is Mode.EXACT or not any(one.calls is None for one in part.lookups):
            return {}
        try:
            seen = {one.name: one for one in _part_of(self._recorded[0], self.sink.name).lookups}
        except NoControl as error:
            self.notes.append(f"whether a lookup was changed can't be told: {error.message}")
            return {}
        until = part.reads.end + (part.finality.ahead if part.finality is not None else timedelta())
        config, found = self.staged.loaded.config, {}
        for one in part.lookups:
            old = seen.get(one.name)
            if old is not None and one.calls is None and differs(self.spark, config, old, one, until):
                found[one.name] = old
                self.notes.append(f"lookup {one.name!r} was changed after production had read it: controls undo that")
        return found

    @cached_property
    def _without_changed_lookups(self) -> Control:
        plan = replace(self.plan, jobs=(replace(self.part, sinks=(self.sink.name,), query=None),))
        control = self._run(Role.LOOKUPS, plan, [Stretch(self.own)])
        self.controls.append(control)
        return control

    def rows(self, control: Control) -> DataFrame:
        """What a control wrote, as the sink would hold it."""
        self.controls.append(control)
        return self._written(control)

    def _written(self, control: Control) -> DataFrame:
        rows = replace(self.sink, table=control.table).rows(self.spark)
        return _fitted(self.sink.sink.as_stored(rows), self.staged_rows())

    def stored(self) -> DataFrame:
        """What the run would have staged with the lookups that production had, as the sink would hold it."""
        return self._written(self._without_changed_lookups) if self.then else self.staged_rows()

    def staged_rows(self) -> DataFrame:
        """What the run itself staged, as the sink would hold it."""
        return self.sink.sink.as_stored(self.sink.rows(self.spark))

    def dropped_late(self, *runs: Run) -> bool:
        """Whether any of these runs dropped events as late itself."""
        return any(_late_rows(run, self.sink.name) for run in runs)

    @cached_property
    def _recorded(self) -> tuple[Plan, list[Stretch]]:
        """Production's micro-batches as slices, and which code ran each stretch of them."""
        found = self.production
        store = RunStore.open(self.staged.home)
        if self.part.mode is Mode.EXACT:
            plan = replace(self.plan, jobs=(replace(self.part, sinks=(self.sink.name,), query=None),))
        elif found.plan is not None:
            return found.plan, list(found.stretches)
        else:
            plan = self._exact_plan(found.run, [one.code for one in found.stretches])
        part = _part_of(plan, self.sink.name)
        known = versions(store.starts(found.run.id, self.sink.name))
        return plan, stretches(part.slices, store.batches(found.run.id, self.sink.name), known)

    def _exact_plan(self, run: Run, codes: Sequence[Code]) -> Plan:
        """The longest of the plans that these codes and the run's own need: more batches change nothing."""
        asked = replace(self.request, mode=Mode.EXACT, live_run=run.id, slice_rows=None, slice_span=None)
        distinct = {code.hash: code for code in (*codes, self.own)}
        plans = [self._planned(code, asked) for code in distinct.values()]
        sources = {frozenset(one.name for one in _part_of(plan, self.sink.name).sources) for plan in plans}
        if len(sources) > 1:
            raise NoControl("the code now and then reads different sources, so it can't run the same micro-batches")
        return max(plans, key=lambda plan: len(_part_of(plan, self.sink.name).slices))

    def _planned(self, code: Code, request: BackfillRequest) -> Plan:
        """A plan of this sink alone, that reads every column: versions of code may differ in those they use."""
        try:
            with kept_app(self.staged.home, self.staged.loaded, code, self.sink.name) as (loaded, app):
                jobs = tuple({query.job for query in queries(loaded.config, app) if query.sink == self.sink.name})
                made = make_plan(self.spark, loaded, app, self.staged.home, replace(request, jobs=jobs))
        except NoControl:
            raise
        except RekappaError as error:
            raise NoControl(f"code {code} can't be planned: {error.message}") from error
        part = _part_of(made, self.sink.name)
        if part.chance:
            raise NoControl(f"production's job uses {', '.join(part.chance)}: what it computes differs in every run")
        return replace(made, jobs=(replace(part, sinks=(self.sink.name,), query=None),))

    def _wider(self, warm_up: timedelta, drain: timedelta) -> BackfillRequest:
        return replace(self.request, mode=self.part.mode, warm_up=warm_up, drain=drain)

    def _run(self, role: Role, plan: Plan, parts: Sequence[Stretch]) -> Control:
        known = {one.name: one for one in self.part.lookups} | dict(self.then)
        every = tuple(
            replace(
                job,
                sources=tuple(replace(one, columns=()) for one in job.sources),
                lookups=tuple(known.get(one.name, one) for one in job.lookups),
            )
            for job in plan.jobs
        )
        return run_control(
            self.spark, self.staged, self.sink.name, role, replace(plan, jobs=every), parts, tell=self.tell
        )


def _part_of(plan: Plan, sink: str) -> JobPlan:
    for job in plan.jobs:
        if sink in job.sinks:
            return job
    raise NoControl(f"no plan can be made for sink {sink!r}")


def _late_rows(run: Run, sink: str) -> int:
    jobs = run.progress.get("jobs") or ()
    found = [(job.get("queries") or {}).get(sink) for job in jobs]
    return sum(int(one.get("late_rows") or 0) for one in found if one)


def _fitted(rows: DataFrame, like: DataFrame) -> DataFrame:
    """The rows in the columns of the sink: one that the code did not make yet is null, as a new column is, and one
    that it made narrower is as the table holds it since it was widened."""
    from pyspark.sql import functions as F

    from rekappa.validate.sides import by_place

    types = {field.name: field.dataType for field in rows.schema}
    wrong = [
        field.name
        for field in like.schema
        if (kind := types.get(field.name, field.dataType)) != field.dataType
        and not SPARK_TAKES(kind.simpleString(), field.dataType.simpleString())
    ]
    if wrong:
        raise NoControl(f"production's code gives another type to {', '.join(wrong)}")
    placed, places = by_place(rows)
    return placed.select(
        *(
            (F.col(places[field.name]) if field.name in places else F.lit(None)).cast(field.dataType).alias(field.name)
            for field in like.schema
        )
    )
