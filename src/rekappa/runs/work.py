"""One process at work on one backfill: how far it is, what it was told, and what to do when a piece fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rekappa.app import App
from rekappa.config.load import Loaded
from rekappa.errors import RekappaError, WorkFailed
from rekappa.home import Home
from rekappa.plan.plan import Mode, Plan
from rekappa.spark.failures import Again, read_failure
from rekappa.storage.location import Location
from rekappa.store.claim import Claim
from rekappa.store.record import Run, State, Wish
from rekappa.timeline import format_instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ATTEMPTS = 3
LOOK = 0.2
PLAN = "plan.jsonl.gz"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is: `done` of `total` chunks or slices, over all its jobs and queries."""

    run: str
    job: str
    mode: Mode
    done: int
    total: int
    rows: int
    planned_rows: int
    late_rows: int = 0
    state_rows: int = 0
    reached: datetime | None = None
    left: timedelta | None = None
    paused: bool = False

    @property
    def unit(self) -> str:
        return "chunk" if self.mode is Mode.BULK else "slice"


OnProgress = Callable[[Progress], None]


@dataclass(slots=True)
class Work:
    """One process at work on one run. `waited` says that the job at work was paused in between."""

    spark: SparkSession
    loaded: Loaded
    app: App
    home: Home
    run: Run
    plan: Plan
    claim: Claim
    stop: threading.Event
    on_progress: OnProgress
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    paused: bool = False
    waited: bool = False
    plan_name: str = PLAN

    @property
    def plan_file(self) -> Location:
        """The saved plan that slices are read from."""
        return self.folder / self.plan_name

    @property
    def folder(self) -> Location:
        return self.home.checkpoint(self.run.app, self.run.id)

    def pausing(self, paused: bool) -> None:
        """Say in the record whether the run waits; saying it again is nothing."""
        if paused != self.paused:
            self.claim.update(state=State.PAUSED if paused else State.RUNNING)
            self.paused = paused
            self.waited = True


class Ended(Exception):
    """Leaves the work between two chunks or slices: `state` is what the run is then."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.state = state


def with_retries(what: str, make: Callable[[], None]) -> None:
    """Make a piece; what may pass is tried again, what would repeat is not."""
    for number in range(1, ATTEMPTS + 1):
        try:
            make()
            return
        except RekappaError:
            raise
        except Exception as error:
            found = read_failure(error)
            if number < ATTEMPTS and found.again is not Again.USELESS:
                continue
            named = f" (file {found.file})" if found.file and found.file not in found.cause else ""
            kept = "The run keeps what is done: `rekappa resume RUN` makes the rest."
            raise WorkFailed(
                f"Cannot make {what}{named}: {found.cause}", hint=f"{found.remedy} {kept}".strip()
            ) from error


def go_on(work: Work, waiting: Callable[[], None]) -> bool:
    """Called between chunks: waits while paused; raises `Ended` to leave."""
    if work.stop.is_set():
        raise Ended(State.STOPPED)
    told = work.claim.wish()
    if told is Wish.PAUSE:
        work.pausing(True)
        waiting()
        while (told := work.claim.wish()) is Wish.PAUSE and not work.stop.is_set():
            time.sleep(LOOK)
        if work.stop.is_set():
            raise Ended(State.STOPPED)
        if told is Wish.GO:
            work.pausing(False)
    if told is Wish.CANCEL:
        raise Ended(State.CANCELLED)
    work.claim.check()
    return True


def report(work: Work, progress: Progress) -> None:
    work.jobs.setdefault(progress.job, {"job": progress.job, "mode": progress.mode.value}).update(
        done=progress.done,
        total=progress.total,
        rows=progress.rows,
        planned_rows=progress.planned_rows,
        late_rows=progress.late_rows,
        state_rows=progress.state_rows,
        reached=format_instant(progress.reached) if progress.reached else None,
        seconds_left=round(progress.left.total_seconds(), 1) if progress.left is not None else None,
    )
    save_progress(work)
    work.on_progress(progress)


def save_progress(work: Work) -> None:
    work.claim.update(progress={"jobs": list(work.jobs.values())})
