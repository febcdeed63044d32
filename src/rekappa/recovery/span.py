"""A window on one column of a table, in the two languages that ask about it: Spark's and Iceberg's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rekappa.errors import PublishError
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import StructType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Span:
    """The rows whose `column` lies in `window`. A row without a time is in no window."""

    column: str
    window: Window

    def inside(self) -> Column:
        """True for rows of the window, false (never null) for all others."""
        from pyspark.sql import functions as F

        at = F.col(self.column)
        return F.coalesce((at >= F.lit(self.window.start)) & (at < F.lit(self.window.end)), F.lit(False))

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
        return make.__getattr__("and")(make.greaterThanOrEqual(self.column, low), make.lessThan(self.column, high))


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def event_time_type(schema: StructType, column: str) -> str | None:
    """The Spark type of a possibly nested column; None if there is none of that name."""
    from pyspark.sql.types import StructType as Struct

    here: Any = schema
    for part in column.split("."):
        if not isinstance(here, Struct) or part not in here.names:
            return None
        here = here[part].dataType
    return str(here.simpleString())
