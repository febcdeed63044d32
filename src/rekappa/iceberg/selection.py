"""Which rows of a table are replaced together, in the two languages that ask about it: Spark's and Iceberg's.

InWindow("event_ts", window)      the rows of a window
OfKeys(("id",), staged)           the rows that have one of the staged keys, wherever they are
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from rekappa.errors import PublishError
from rekappa.iceberg.footprint import Footprint, covered_files, footprint
from rekappa.iceberg.past import rows_at
from rekappa.iceberg.private import Filters
from rekappa.iceberg.times import LOCAL, wall_clock, zone
from rekappa.spark.names import quoted
from rekappa.spark.times import within
from rekappa.timeline import EPOCH, Window, micros

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_DAY = timedelta(days=1)


class Selection(Protocol):
    def of(self, rows: DataFrame) -> DataFrame:
        """Those of the rows that are selected."""

    def others(self, rows: DataFrame) -> tuple[DataFrame, ...]:
        """Those that are not, in the parts that should go to files of their own."""

    def expression(self, spark: SparkSession, table: Any) -> Any:
        """An Iceberg expression that holds for every selected row, and perhaps for others."""

    def footprint(self, spark: SparkSession, table: Any, name: str, snapshot: int | None) -> Footprint:
        """The files of one snapshot that hold selected rows."""


@dataclass(frozen=True, slots=True)
class InWindow:
    """The rows whose `column` lies in `window`. A row without a time is in no window.

    With `regions`, only rows that name one of them in `region_column`.
    """

    column: str
    window: Window
    region_column: str | None = None
    regions: tuple[str, ...] = ()

    def __str__(self) -> str:
        return str(self.window)

    def inside(self) -> Column:
        """True for rows of the window, false (never null) for all others."""
        from pyspark.sql import functions as F

        return F.coalesce(self._selected, F.lit(False))

    def of(self, rows: DataFrame) -> DataFrame:
        # Without the above: only so does Iceberg see which files it need not read.
        return rows.where(self._selected)

    @property
    def _selected(self) -> Column:
        from pyspark.sql import functions as F

        chosen = within(F.col(self.column), self.window)
        if self.region_column and self.regions:
            chosen = chosen & F.col(self.region_column).isin(list(self.regions))
        return chosen

    def others(self, rows: DataFrame) -> tuple[DataFrame, ...]:
        """Rows before and after the window go to files of their own: one file with both would span it."""
        from pyspark.sql import functions as F

        before = F.coalesce(F.col(self.column) < F.lit(self.window.start), F.lit(False))
        rest = rows.where(~self.inside())
        return rest.where(before), rest.where(~before)

    def expression(self, spark: SparkSession, table: Any) -> Any:
        field = table.schema().findField(self.column)
        if field is None:
            raise PublishError(
                f"Cannot find the window in {table.name()}: it has no column {self.column!r}",
                hint="`event_time` of the sink must name a column of its table.",
            )
        kind = str(field.type())
        bounds = (self.window.start, self.window.end)
        if kind in LOCAL:
            # Such a time is an instant only in a time zone: Spark takes that of its session.
            here = zone(spark.conf.get("spark.sql.session.timeZone") or "UTC")
            bounds = (wall_clock(bounds[0], here), wall_clock(bounds[1], here))
        low, high = (_iceberg_value(moment, kind) for moment in bounds)
        if low is None:
            raise PublishError(f"Cannot use {self.column!r} of {table.name()} as event time: it is a {field.type()}")
        filters = Filters(spark)
        parts = [filters.at_least(self.column, low), filters.below(self.column, high)]
        if self.region_column and self.regions:
            parts.append(filters.among(self.region_column, self.regions))
        return filters.all_of(parts)

    def footprint(self, spark: SparkSession, table: Any, name: str, snapshot: int | None) -> Footprint:
        """From the table's metadata alone: partitions and column bounds."""
        expression = self.expression(spark, table)
        whole = set() if snapshot is None else covered_files(spark, table, expression, snapshot)
        return footprint(spark, table, expression, snapshot, whole=whole)


@dataclass(frozen=True)
class OfKeys:
    """The rows that have a key of `staged`, which names each key once. For tables without an event time."""

    key: tuple[str, ...]
    staged: DataFrame

    def __str__(self) -> str:
        return "the staged keys"

    @property
    def _keys(self) -> DataFrame:
        return self.staged.select(*(quoted(name) for name in self.key))

    def of(self, rows: DataFrame) -> DataFrame:
        return rows.join(self._keys, list(self.key), "left_semi").select(*(quoted(name) for name in rows.columns))

    def others(self, rows: DataFrame) -> tuple[DataFrame, ...]:
        return (rows.join(self._keys, list(self.key), "left_anti").select(*(quoted(name) for name in rows.columns)),)

    @cached_property
    def _bounds(self) -> dict[str, tuple[Any, Any]]:
        from pyspark.sql import functions as F

        columns = [F.col(quoted(name)) for name in self.key]
        found = self._keys.agg(F.struct(*map(F.min, columns)), F.struct(*map(F.max, columns))).first()
        assert found is not None
        return {name: (found[0][at], found[1][at]) for at, name in enumerate(self.key)}

    def expression(self, spark: SparkSession, table: Any) -> Any:
        """The keys' bounds, column by column; a column whose type can't be written so does not narrow it."""
        filters = Filters(spark)
        parts = []
        for name, bounds in self._bounds.items():
            if bounds[0] is None:
                return filters.never
            kind = str(table.schema().findField(name).type())
            low, high = (_iceberg_value(value, kind) for value in bounds)
            if low is not None and high is not None:
                parts += [filters.at_least(name, low), filters.at_most(name, high)]
        return filters.all_of(parts)

    def footprint(self, spark: SparkSession, table: Any, name: str, snapshot: int | None) -> Footprint:
        """Bounds say too little of keys: the files that hold one are found by reading the key columns."""
        from pyspark.sql import functions as F

        if snapshot is None:
            return Footprint(None)
        held = rows_at(spark, name, snapshot).select(*self.key, "_file")
        for column, (low, high) in self._bounds.items():
            if low is not None:
                held = held.where(F.col(quoted(column)).between(low, high))
        found = held.join(self._keys, list(self.key), "left_semi").select("_file").distinct().collect()
        files = {row[0] for row in found}
        return footprint(spark, table, self.expression(spark, table), snapshot, whole=set(), touched=files.__contains__)


def _iceberg_value(value: Any, kind: str) -> Any:
    """A value as Iceberg's expressions take it for a column of this type; None if there is no such way."""
    if isinstance(value, datetime) and kind.startswith("timestamp"):
        # Spark answers an instant as this machine's wall clock shows it, and a time without a zone as it is.
        moment = value if value.tzinfo else value.astimezone() if "tz" in kind else value.replace(tzinfo=UTC)
        return micros(moment) * (1000 if "_ns" in kind else 1)
    if isinstance(value, datetime) and kind == "date":
        # The first day that begins at or after the instant.
        return -(-(value - EPOCH) // _DAY)
    if isinstance(value, date) and kind == "date":
        return (value - EPOCH.date()).days
    if isinstance(value, bool):
        return None
    plain = (isinstance(value, int) and kind in ("int", "long")) or (isinstance(value, str) and kind == "string")
    return value if plain else None
