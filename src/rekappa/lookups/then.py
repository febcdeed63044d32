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
from rekappa.iceberg.past import began_empty, was_current
from rekappa.lookups.planned import counted
from rekappa.lookups.versions import versions_of
from rekappa.plan.plan import LookupPlan
from rekappa.spark.names import quoted
from rekappa.timeline import Window, format_instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def as_of(
    spark: SparkSession, config: AppConfig, planned: tuple[LookupPlan, ...], moment: datetime, reads: Window
) -> tuple[LookupPlan, ...]:
    """The lookups at the snapshots that were current at a moment, with the versions that these have in `reads`.

    Refuses one whose snapshot has expired, with the oldest that is there, unless its `unknown_past` is accepted.
    """
    found = []
    for one in planned:
        lookup = config.lookups.get(one.name)
        if isinstance(lookup, IcebergLookup) and lookup.valid_from is not None:
            snapshot = _snapshot(spark, one, lookup, moment)
            if snapshot != one.snapshot:
                rows = versions_of(config, one.name).read(spark, snapshot)
                versions, first = counted(rows, lookup.valid_from, reads)
                one = replace(one, snapshot=snapshot, versions=versions, first=first)
        found.append(one)
    return tuple(found)


def _snapshot(spark: SparkSession, planned: LookupPlan, lookup: IcebergLookup, moment: datetime) -> int | None:
    table = load_table(spark, planned.table)
    line = was_current(table)
    known = [number for since, number in line if since <= moment]
    if known or began_empty(table):
        return known[-1] if known else None
    oldest, number = line[0]
    if lookup.unknown_past == "accept":
        return number
    raise PlanError(
        f"Cannot read lookup {planned.name!r} as production did at {format_instant(moment)}: the snapshots of "
        f"{planned.table} before {format_instant(oldest)} have expired",
        hint=f"--set lookups.{planned.name}.unknown_past=accept takes the oldest that is there; "
        "--mode bulk or ordered takes the table as it is now.",
    )


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
