"""What a plan says of a lookup: which version of its table is read, and how far back it knows."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rekappa.app import Job
from rekappa.config.lookups import ChangesLookup, KeptVersions
from rekappa.config.model import AppConfig
from rekappa.errors import PlanError
from rekappa.iceberg.commits import load_table
from rekappa.lookups.keep import kept_lookups
from rekappa.lookups.open import require_sound
from rekappa.lookups.services import services_of
from rekappa.lookups.versions import versions_of
from rekappa.plan.margins import Margins
from rekappa.plan.plan import LookupPlan
from rekappa.spark.names import quoted
from rekappa.timeline import Window, format_instant, instant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def plan_lookups(
    spark: SparkSession, config: AppConfig, job: Job, window: Window, margins: Margins
) -> tuple[LookupPlan, ...]:
    """Pin every lookup of the job, but services, at its table's newest snapshot; refuses what `with_lookups` refuses.

    Looks at the times of the versions, which are as many as the table has rows.
    """
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
        inside, oldest = counted(rows, versions.valid_from, margins.reads(window))
        lookup = config.lookups[name]
        if name in kept_lookups(config) and isinstance(lookup, KeptVersions) and lookup.unknown_past == "refuse":
            require_known(job.name, name, versions.table, oldest, window, margins)
        made.append(LookupPlan(name, versions.table, pinned, inside, oldest))
    return tuple(made)


def counted(rows: DataFrame, valid_from: str, reads: Window) -> tuple[int, datetime | None]:
    """How many versions begin in what is read, and when the first of all does."""
    from pyspark.sql import functions as F

    since = F.col(quoted(valid_from))
    within = (since >= F.lit(reads.start)) & (since < F.lit(reads.end))
    first, inside = rows.agg(F.unix_micros(F.min(since)), F.count(F.when(within, 1))).collect()[0]
    return int(inside), None if first is None else instant(int(first))


def require_known(job: str, name: str, table: str, oldest: datetime | None, window: Window, margins: Margins) -> None:
    """Refuse events before the first version that was kept: its table may have held anything then.

    Events that are read for the sake of clocks alone are no part of the output.
    """
    wanted = margins.wanted(window).start
    if oldest is not None and oldest <= wanted:
        return
    known = "holds no version yet" if oldest is None else f"knows nothing before {format_instant(oldest)}"
    later = "" if oldest is None else f" (from --start {format_instant(oldest + margins.before)} on)"
    raise PlanError(
        f"Cannot replay job {job!r} from {format_instant(wanted)} on: lookup {name!r} ({table}) {known}",
        hint=f"Take a later window{later}, say when its rows began to hold (rekappa archive lookup APP --lookup {name} "
        f"--since TIME, at its first look), or give such events nulls: --set lookups.{name}.unknown_past=accept.",
    )


def lookup_warnings(
    spark: SparkSession, config: AppConfig, planned: tuple[LookupPlan, ...], wanted: Window
) -> tuple[str, ...]:
    """What is missing: events before the first version of anything get nothing, and some changes tell no key."""
    said = []
    for one in planned:
        said += left_out(spark, config, one.name, one.snapshot)
        if one.calls is not None:
            continue
        if one.first is None:
            said.append(f"Lookup {one.name!r} has no version at all: every event gets nulls from it.")
        elif one.first > wanted.start:
            said.append(
                f"Lookup {one.name!r} knows nothing before {format_instant(one.first)}: "
                "earlier events get nulls from it."
            )
    return tuple(said)


def left_out(spark: SparkSession, config: AppConfig, name: str, snapshot: int | None = None) -> list[str]:
    """What to say of a lookup's changes that change nothing, as its archive is now or was at a snapshot."""
    if not isinstance(config.lookups.get(name), ChangesLookup):
        return []
    found = versions_of(config, name).left_out(spark, snapshot)
    return [f"Lookup {name!r} leaves out changes that tell no key: {found:,}."] if found else []
