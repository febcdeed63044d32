"""The plan: what a backfill will read, in which order and why. Frozen, and what runs.

    plan = load(home_of_the_run / "plan.jsonl.gz")
    for job in plan.jobs:
        print(job.job, job.mode, job.reason, len(job.slices))

The same inputs give the same plan: there is no clock in it, and its id is a hash of its content.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from rekappa.errors import PlanError
from rekappa.plan.finality import Finality
from rekappa.plan.model import Slice
from rekappa.plan.shape import Tolerance
from rekappa.timeline import Window

PLAN_VERSION = 7
"""The version that this rekappa writes and reads."""


class Mode(StrEnum):
    """How a job is run over the past."""

    BULK = "bulk"
    ORDERED = "ordered"
    STRICT = "strict"
    EXACT = "exact"


@dataclass(frozen=True, slots=True)
class Chunk:
    """One batch job of a bulk run: makes the output of `output`, and reads the ingestion times `reads` for it."""

    number: int
    output: Window
    reads: Window


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the run will cost. `basis` says where the figures come from; None means that nothing is known."""

    rows: int
    bytes: int
    duration: timedelta | None = None
    state_rows: int | None = None
    basis: str = ""


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """What a job reads of one source, and what it may leave alone.

    `snapshot` pins the table's version. `complete_until` says, per region, the ingestion time below which the
    archive has everything. `newest` is the newest ingestion time in the table. `density` holds the rows to be
    read per equal stretch of the job's `reads`, oldest first; `wide_files` counts the files that had to be cut.
    `readers` is how often the query reads the source, where the slices say so for each (exact mode).
    """

    name: str
    table: str
    snapshot: int | None
    columns: tuple[str, ...]
    max_misalignment: timedelta
    files: int
    rows: int
    bytes: int
    skipped_files: int = 0
    skipped_bytes: int = 0
    complete_until: Mapping[str, datetime] = field(default_factory=dict)
    newest: datetime | None = None
    wide_files: int = 0
    density: tuple[int, ...] = ()
    readers: int = 1


@dataclass(frozen=True, slots=True)
class CallsPlan:
    """What a job asks of a recorded service: `calls`, of which `unanswered` have no answer in the record; None where
    that can't be counted without running the job. Answers that were kept after `until` are not taken; `reach` has all
    times that are asked for, if it is known."""

    missing: str
    until: datetime
    calls: int | None = None
    unanswered: int | None = None
    reach: Window | None = None


@dataclass(frozen=True, slots=True)
class LookupPlan:
    """The version of a lookup's table that is read: `versions` of its rows begin in the job's `reads`, the first of all
    at `first`. `calls` is there for a service alone, whose record's answers are the versions."""

    name: str
    table: str
    snapshot: int | None
    versions: int
    first: datetime | None
    calls: CallsPlan | None = None


@dataclass(frozen=True, slots=True)
class JobPlan:
    """One job's part: its mode, and then chunks (bulk) or slices (the other modes).

    A bulk job that is `by_slice` has both: one chunk, whose rows one batch job takes through its state in the order of
    the slices.

    `finality` is None where the window is ingestion time: output is then final once it is read.

    In exact mode each query of a job has a part of its own, named by `query`: production ran it in its own batches.
    `chance` names what the job uses that differs in every run: the clock, random numbers.
    `vouched` is False where the window's rows may lack inputs, because the margins are or may be too short.
    `state` is the kind of state that its queries hold, by which speeds are compared.
    `tolerances` names, per sink, the columns that no replay gives exactly, and what they are equal up to.
    """

    job: str
    sinks: tuple[str, ...]
    mode: Mode
    reason: str
    warm_up: timedelta
    warm_up_reason: str
    drain: timedelta
    drain_reason: str
    reads: Window
    sources: tuple[SourcePlan, ...]
    slices: tuple[Slice, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    warnings: tuple[str, ...] = ()
    estimate: Estimate = field(default_factory=lambda: Estimate(0, 0))
    query: str | None = None
    chance: tuple[str, ...] = ()
    tolerances: Mapping[str, Mapping[str, Tolerance]] = field(default_factory=dict)
    finality: Finality | None = None
    vouched: bool = True
    state: str = ""
    lookups: tuple[LookupPlan, ...] = ()
    by_slice: bool = False

    @property
    def name(self) -> str:
        """What tells the parts of a plan apart: the query's name, or the job's."""
        return self.query or self.job

    def source(self, name: str) -> SourcePlan:
        """The part of one source; refuses a name that the job does not read."""
        for source in self.sources:
            if source.name == name:
                return source
        known = ", ".join(source.name for source in self.sources)
        raise PlanError(f"Cannot find source {name!r} in the plan of job {self.job!r}", hint=f"It reads: {known}.")


@dataclass(frozen=True)
class Plan:
    """The frozen list of what to do for every job of the app. An empty `regions` means all of them."""

    app: str
    window: Window
    regions: tuple[str, ...]
    jobs: tuple[JobPlan, ...]
    version: int = PLAN_VERSION

    def job(self, name: str) -> JobPlan:
        """The part of one job, or of one query of it; refuses a name that is not in the plan."""
        for job in self.jobs:
            if job.name == name:
                return job
        known = ", ".join(job.name for job in self.jobs)
        raise PlanError(f"Cannot find job {name!r} in the plan", hint=f"It plans: {known}.")

    @property
    def id(self) -> str:
        """A hash of the whole content: equal plans have equal ids. Costs as much as saving the plan."""
        from rekappa.plan.store import plan_id

        return plan_id(self)
