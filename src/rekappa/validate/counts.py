"""Counting differences whose causes are settled: of each kind, cause and column, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rekappa.record import METADATA
from rekappa.timeline import Window
from rekappa.validate.over_time import OverTime, Stretches
from rekappa.validate.result import Cause
from rekappa.validate.settle import CAUSE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CELL = "__rk_cell__"


@dataclass(frozen=True, slots=True)
class Counted:
    """`columns` counts, of the rows that are on both sides, how many differ in each; the most frequent first."""

    kinds: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("different", "missing", "extra"), 0))
    causes: dict[Cause, int] = field(default_factory=dict)
    columns: dict[str, int] = field(default_factory=dict)
    over_time: OverTime | None = None


def counted(rows: DataFrame, event_time: str | None, window: Window | None) -> Counted:
    """Count the differences; over time only where a column says when a row happened."""
    from pyspark.sql import functions as F

    stretches = Stretches.of(window) if event_time is not None and window is not None else None
    cell = _cell(event_time, stretches) if event_time is not None and stretches is not None else F.lit(None).cast("int")
    placed = rows.select("kind", CAUSE, "columns", cell.alias(_CELL))
    by_kind = placed.groupBy(_CELL, "kind", CAUSE).agg(F.count("*").alias("n")).collect()
    named = placed.select(_CELL, F.explode("columns").alias("name"))
    by_column = named.groupBy(_CELL, "name").agg(F.count("*").alias("n")).collect()
    made = Counted()
    for row in by_kind:
        made.kinds[row["kind"]] += row["n"]
        made.causes[Cause(row[CAUSE])] = made.causes.get(Cause(row[CAUSE]), 0) + row["n"]
    sums: dict[str, int] = {}
    for row in by_column:
        sums[row["name"]] = sums.get(row["name"], 0) + row["n"]
    columns = dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))
    causes = {cause: made.causes[cause] for cause in Cause if cause in made.causes}
    if stretches is None:
        return Counted(made.kinds, causes, columns)
    alone = [(row[_CELL], row["kind"], row["n"]) for row in by_kind if row["kind"] != "different"]
    over_time = OverTime(
        stretches,
        stretches.spread((row[_CELL], row[CAUSE], row["n"]) for row in by_kind),
        stretches.spread([*((row[_CELL], row["name"], row["n"]) for row in by_column), *alone]),
    )
    return Counted(made.kinds, causes, columns, over_time)


def moment_of(side: str, event_time: str) -> Column:
    """When the row of one side happened, null where there is none."""
    from pyspark.sql import functions as F

    path = event_time.split(".") if event_time.startswith(f"{METADATA}.") else [event_time]
    at = F.col(side)
    for name in path:
        at = at.getField(name)
    return at.cast("timestamp")


def _cell(event_time: str, stretches: Stretches) -> Column:
    from pyspark.sql import functions as F

    start, width = stretches.micros
    at = F.coalesce(moment_of("production", event_time), moment_of("staging", event_time))
    return F.floor((F.unix_micros(at) - F.lit(start)) / F.lit(width)).cast("int")
