"""What a plan says of a lookup: which version of its table is read, and how far back it knows."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rekappa.app import Job
from rekappa.config.lookups import KeptVersions
from rekappa.config.model import AppConfig
from rekappa.errors import PlanError
from rekappa.iceberg.commits import load_table
from rekappa.lookups.keep import kept_lookups
from rekappa.lookups.open import require_sound
from rekappa.lookups.services import services_of
from rekappa.lookups.versions import versions_of
from rekappa.plan.plan import LookupPlan
from rekappa.spark.names import quoted
from rekappa.timeline import Window, format_instant, instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plan_lookups(spark: SparkSession, config: AppConfig, job: Job, reads: Window) -> tuple[LookupPlan, ...]:
    """Pin every lookup of the job, but services, at its table's newest snapshot; refuses what `with_lookups` refuses.

    Looks at the times of the versions, which are as many as the table has rows.
    """
    from pyspark.sql import functions as F

    made = []
    services = services_of(config, job)
    for name in job.lookups:
        if name in services:
            continue
        versions = versions_of(config, name)
        versions.read(spark)
        snapshot = load_table(spark, versions.table).currentSnapshot()
        pinned = None if snapshot is None else int(snapshot.snapshotId())
        rows = versions.read(spark, pinned)
        require_sound(versions, rows)
        since = F.col(quoted(versions.valid_from))
        within = (since >= F.lit(reads.start)) & (since < F.lit(reads.end))
        first, inside = rows.agg(F.unix_micros(F.min(since)), F.count(F.when(within, 1))).collect()[0]
        oldest = None if first is None else instant(int(first))
        lookup = config.lookups[name]
        if name in kept_lookups(config) and isinstance(lookup, KeptVersions) and lookup.unknown_past == "refuse":
            _require_known(job, name, versions.table, oldest, reads)
        made.append(LookupPlan(name, versions.table, pinned, int(inside), oldest))
    return tuple(made)


def _require_known(job: Job, name: str, table: str, oldest: datetime | None, reads: Window) -> None:
    """Refuse events before the first version that was kept: its table may have held anything then."""
    if oldest is not None and oldest <= reads.start:
        return
    known = "holds no version yet" if oldest is None else f"knows nothing before {format_instant(oldest)}"
    raise PlanError(
        f"Cannot replay job {job.name!r} from {format_instant(reads.start)} on: lookup {name!r} ({table}) {known}",
        hint=f"Take a later window, say when its rows began to hold (rekappa archive lookup APP --lookup {name} "
        f"--since TIME, at its first look), or give such events nulls: --set lookups.{name}.unknown_past=accept.",
    )


def lookup_warnings(planned: tuple[LookupPlan, ...], reads: Window) -> tuple[str, ...]:
    """What is missing: events before the first version of anything get nothing."""
    said = []
    for one in planned:
        if one.calls is not None:
            continue
        if one.first is None:
            said.append(f"Lookup {one.name!r} has no version at all: every event gets nulls from it.")
        elif one.first > reads.start:
            said.append(
                f"Lookup {one.name!r} knows nothing before {format_instant(one.first)}: "
                "earlier events get nulls from it."
            )
    return tuple(said)
