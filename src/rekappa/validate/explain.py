"""Why the differences are there: a cause for each row that `rekappa.validate.diff` found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.validate.result import Cause

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LATE_AT = "late_at"
"""The column of `Evidence.late` that holds a late input's event time."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known besides the two tables; leave out what is not.

    `open_from`: rows from this event time on were not final when the backfill ended. `late`: the inputs that
    production dropped as late, with their event time in `late_at` and columns that carry the names of the
    sink's. A late input explains a difference that has the same values in the key columns both know (in all
    shared columns, without a key) and lies within `reach` of it. `elsewhere`: production's rows outside the
    window.
    """

    event_time: str | None = None
    key: tuple[str, ...] = ()
    open_from: datetime | None = None
    late: DataFrame | None = None
    reach: timedelta = timedelta(hours=1)
    elsewhere: DataFrame | None = None


def explained(differences: DataFrame, evidence: Evidence) -> DataFrame:
    """The differences with a column `cause`. One row in, one row out."""
    from pyspark.sql import functions as F

    rows = differences.withColumn("row", F.coalesce("staging", "production"))
    outside = late = opened = F.lit(False)
    if evidence.event_time:
        at = F.col(f"row.{evidence.event_time}").cast("timestamp")
        rows = rows.withColumn("at", at)
        if evidence.open_from is not None:
            opened = F.coalesce(F.col("at") >= F.lit(evidence.open_from), F.lit(False))
    if evidence.elsewhere is not None and evidence.key:
        keys = [f"`{name}`" for name in evidence.key]
        there = evidence.elsewhere.select(*keys).distinct()
        rows, outside = _marked(rows, there, [F.col(f"row.{k}") == there[k] for k in evidence.key], "is_outside")
    if evidence.late is not None:
        shared = _shared(rows, evidence.late, evidence.key)
        if shared or evidence.event_time:
            inputs = evidence.late.select(*shared, LATE_AT).distinct()
            on = [F.col(f"row.{name}") == inputs[name] for name in shared]
            if evidence.event_time:
                seconds = evidence.reach.total_seconds()
                gap = F.abs(F.unix_micros("at") - F.unix_micros(inputs[LATE_AT].cast("timestamp")))
                on.append(gap <= int(seconds * 1_000_000))
            rows, late = _marked(rows, inputs, on, "is_late")
    cause = (
        F.when(F.col("duplicated"), Cause.DUPLICATED.value)
        .when(outside, Cause.OUTSIDE.value)
        .when(opened, Cause.OPEN.value)
        .when(late, Cause.LATE.value)
        .otherwise(Cause.UNEXPLAINED.value)
    )
    return rows.select(*differences.columns, cause.alias("cause"))


def _shared(rows: DataFrame, late: DataFrame, key: Sequence[str]) -> list[str]:
    """The columns by which a late input and a difference are the same thing."""
    from pyspark.sql.types import StructType

    row = rows.schema["row"].dataType
    assert isinstance(row, StructType)
    known = {field.name: field.dataType for field in late.schema if field.name != LATE_AT}
    return [field.name for field in row if known.get(field.name) == field.dataType and (not key or field.name in key)]


def _marked(rows: DataFrame, there: DataFrame, on: list[Column], mark: str) -> tuple[DataFrame, Column]:
    """Add a number to each row, and learn which have a partner: a row with several stays one row."""
    from pyspark.sql import functions as F

    found = there.withColumn(mark, F.lit(True))
    condition = on[0]
    for one in on[1:]:
        condition = condition & one
    numbered = rows.withColumn(f"{mark}_id", F.monotonically_increasing_id())
    joined = numbered.join(found, condition, "left")
    kept = [F.first(name).alias(name) for name in rows.columns]
    grouped = joined.groupBy(f"{mark}_id").agg(*kept, F.max(mark).alias(mark))
    return grouped.drop(f"{mark}_id"), F.coalesce(F.col(mark), F.lit(False))
