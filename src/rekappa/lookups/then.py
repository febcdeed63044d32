"""Lookups as production saw them: the snapshots of tables that others may change afterwards, also in their past.

Versions that rekappa keeps, and archived changes, are only ever added to, each with a time to come: what they were at a
time is still in them. A table that carries validity itself may be corrected: a row added with a time in the past.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from rekappa.config.lookups import IcebergLookup
from rekappa.config.model import AppConfig
from rekappa.errors import PlanError
from rekappa.iceberg.commits import load_table
from rekappa.lookups.versions import versions_of
from rekappa.plan.plan import LookupPlan
from rekappa.spark.names import quoted
from rekappa.timeline import format_instant, instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def as_of(
    spark: SparkSession, config: AppConfig, planned: tuple[LookupPlan, ...], moment: datetime
) -> tuple[LookupPlan, ...]:
    """The lookups at the snapshots that were current at a moment.

    Refuses one whose snapshot has expired, with the oldest that is there, unless its `unknown_past` is accepted.
    """
    found = []
    for one in planned:
        lookup = config.lookups.get(one.name)
        if isinstance(lookup, IcebergLookup) and lookup.valid_from is not None:
            one = replace(one, snapshot=_snapshot(spark, one, lookup, moment))
        found.append(one)
    return tuple(found)


def _snapshot(spark: SparkSession, planned: LookupPlan, lookup: IcebergLookup, moment: datetime) -> int | None:
    table = load_table(spark, planned.table)
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        made, number = instant(int(snapshot.timestampMillis()) * 1000), int(snapshot.snapshotId())
        if made <= moment:
            return number
        parent = snapshot.parentId()
        snapshot = None if parent is None else table.snapshot(parent)
        if parent is None or snapshot is not None:
            continue
        if lookup.unknown_past == "accept":
            return number
        raise PlanError(
            f"Cannot read lookup {planned.name!r} as production did at {format_instant(moment)}: the snapshots of "
            f"{planned.table} before {format_instant(made)} have expired",
            hint=f"--set lookups.{planned.name}.unknown_past=accept takes the oldest that is there; "
            "--mode bulk or ordered takes the table as it is now.",
        )
    return None


def differs(spark: SparkSession, config: AppConfig, one: LookupPlan, other: LookupPlan, until: datetime) -> bool:
    """Whether two snapshots of a lookup may give an event before `until` different versions."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    if one.snapshot == other.snapshot:
        return False
    versions = versions_of(config, one.name)
    early = F.col(quoted(versions.valid_from)) < F.lit(until)
    mine, theirs = (versions.read(spark, snapshot).where(early) for snapshot in (one.snapshot, other.snapshot))
    try:
        return bool(mine.exceptAll(theirs).take(1) or theirs.exceptAll(mine).take(1))
    except AnalysisException:
        # Other columns, or some that can't be compared: a replay shows whether it matters.
        return True
