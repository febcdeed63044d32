"""A window on one column of a table, in the two languages that ask about it: Spark's and Iceberg's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rekappa.errors import PublishError
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Span:
    """The rows whose `column` lies in `window`. A row without a time is in no window.

    With `regions`, only rows that name one of them in `region_column`.
    """

    column: str
    window: Window
    region_column: str | None = None
    regions: tuple[str, ...] = ()

    def inside(self) -> Column:
        """True for rows of the window, false (never null) for all others."""
        from pyspark.sql import functions as F

        at = F.col(self.column)
        chosen = (at >= F.lit(self.window.start)) & (at < F.lit(self.window.end))
        if self.region_column and self.regions:
            chosen = chosen & F.col(self.region_column).isin(list(self.regions))
        return F.coalesce(chosen, F.lit(False))

    def before(self) -> Column:
        from pyspark.sql import functions as F

        return F.coalesce(F.col(self.column) < F.lit(self.window.start), F.lit(False))

    def expression(self, spark: SparkSession, table: Any) -> Any:
        """The same as an Iceberg expression, bound by the column's type in the table."""
        field = table.schema().findField(self.column)
        if field is None:
            raise PublishError(
                f"Cannot find the window in {table.name()}: it has no column {self.column!r}",
                hint="`event_time` of the sink must name a column of its table.",
            )
        kind = str(field.type())
        if kind.startswith("timestamp"):
            unit = 1000 if kind.startswith("timestamp_ns") or kind.startswith("timestamptz_ns") else 1
            low, high = (_micros(moment) * unit for moment in (self.window.start, self.window.end))
        elif kind == "date":
            low, high = (-(-(moment - _EPOCH) // _DAY) for moment in (self.window.start, self.window.end))
        else:
            raise PublishError(f"Cannot use {self.column!r} of {table.name()} as event time: it is a {kind}")
        jvm: Any = spark._jvm
        make = jvm.org.apache.iceberg.expressions.Expressions
        both = getattr(make, "and")
        expression = both(make.greaterThanOrEqual(self.column, low), make.lessThan(self.column, high))
        if self.region_column and self.regions:
            names = jvm.java.util.ArrayList()
            for region in self.regions:
                names.add(region)
            expression = both(expression, getattr(make, "in")(self.region_column, names))
        return expression


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
