"""Rows as multisets: equal rows count as often as they are there."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from rekappa.spark.hashing import hashable
from rekappa.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NUMBER = "__copy__"


def without(rows: DataFrame, gone: DataFrame) -> DataFrame:
    """The rows, less as many copies of each as `gone` holds. Both have the same columns."""
    from pyspark.sql import functions as F

    columns = rows.columns
    left, right = _numbered(rows).alias("l"), _numbered(gone.select(*map(quoted, columns))).alias("r")
    keys = [name for name in left.columns if name.startswith(_NUMBER)]
    same = [F.col(f"l.{name}").eqNullSafe(F.col(f"r.{name}")) for name in keys]
    return left.join(right, reduce(lambda one, other: one & other, same), "left_anti").select(*map(quoted, columns))


def _numbered(rows: DataFrame) -> DataFrame:
    """Each row with what it is compared by, and which of its equals it is."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    compared = {
        f"{_NUMBER}{at}": hashable(F.col(quoted(field.name)), field.dataType) for at, field in enumerate(rows.schema)
    }
    shown = rows.withColumns(compared)
    copies = Window.partitionBy(*compared).orderBy(F.lit(0))
    return shown.withColumn(_NUMBER, F.row_number().over(copies))
