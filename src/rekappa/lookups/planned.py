"""What a plan says of a lookup: which version of its table is read, and how far back it knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekappa.app import Job
from rekappa.config.model import AppConfig
from rekappa.iceberg.commits import load_table
from rekappa.lookups.open import require_sound
from rekappa.lookups.versions import versions_of
from rekappa.plan.plan import LookupPlan
from rekappa.spark.names import quoted
from rekappa.timeline import Window, format_instant, instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plan_lookups(spark: SparkSession, config: AppConfig, job: Job, reads: Window) -> tuple[LookupPlan, ...]:
    """Pin every lookup of the job at its table's newest snapshot; refuses what `with_lookups` refuses.

    Looks at the times of the versions, which are as many as the table has rows.
    """
    from pyspark.sql import functions as F

    made = []
    for name in job.lookups:
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
        made.append(LookupPlan(name, versions.table, pinned, int(inside), oldest))
    return tuple(made)


def lookup_warnings(planned: tuple[LookupPlan, ...], reads: Window) -> tuple[str, ...]:
    """What is missing: events before the first version of anything get nothing."""
    said = []
    for one in planned:
        if one.first is None:
            said.append(f"Lookup {one.name!r} has no version at all: every event gets nulls from it.")
        elif one.first > reads.start:
            said.append(
                f"Lookup {one.name!r} knows nothing before {format_instant(one.first)}: "
                "earlier events get nulls from it."
            )
    return tuple(said)
