"""From when on windows can be replayed, once an archive has lost its beginning."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from rekappa.app import App
from rekappa.config.load import Loaded
from rekappa.errors import RekappaError
from rekappa.planning.make import margins_of
from rekappa.store.record import Kind, Run, State
from rekappa.timeline import parse_instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class JobReach:
    """The first window that a job can be backfilled for starts at `start`: its warm-up reads up to the cut.

    None where no warm-up could be derived; `why` says how long it is, or why there is none.
    """

    job: str
    start: datetime | None
    why: str


def reach(spark: SparkSession, loaded: Loaded, app: App, sources: Iterable[str], cut: datetime) -> list[JobReach]:
    """For each job that reads one of these sources, where its first window starts after the cut."""
    found = []
    wanted = set(sources)
    for job in app.jobs.values():
        if not wanted & set(job.sources):
            continue
        try:
            margins = margins_of(spark, loaded, app, job)
        except RekappaError as error:
            found.append(JobReach(job.name, None, error.message))
            continue
        found.append(JobReach(job.name, cut + margins.warm_up, margins.warm_up_reason))
    return found


def still_reading(runs: Iterable[Run], tables: Iterable[str], cut: datetime) -> list[str]:
    """Backfills that are not over and read events from before the cut: these stay on disk until they are."""
    wanted = set(tables)
    return [
        run.id
        for run in runs
        if run.kind is Kind.BACKFILL
        and run.state not in (State.FINISHED, State.CANCELLED)
        and wanted & set(run.spec.get("archive") or ())
        and parse_instant(str(run.spec["start"])) < cut
    ]
