"""One 64-bit number for the values of a row: equal rows have equal numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rekappa.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


def row_hash(
    rows: DataFrame, columns: Sequence[str], views: Mapping[str, Callable[[Column], Column]] | None = None
) -> Column:
    """xxhash64 over the columns. A null is told from a missing value, a map's order does not matter.

    A column that has a view is hashed as that shows it: values that look the same there count as equal.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType

    parts: list[Any] = []
    for name in columns:
        kind, column = rows.schema[name].dataType, F.col(quoted(name))
        view = (views or {}).get(name)
        shown = column if view is None else view(column)
        parts.append(hashable(shown, kind) if view is None or isinstance(kind, ArrayType) else shown)
        # xxhash64 skips nulls, so (1, null) and (null, 1) would look alike.
        if rows.schema[name].nullable and len(columns) > 1:
            parts.append(column.isNull())
    return F.xxhash64(*parts)


def hashable(column: Column, kind: DataType) -> Column:
    """A value that Spark can hash and that is equal for equal inputs: -0.0 is 0.0, a map's order does not matter.

    Spark's hash of a nested value skips the nulls in it and does not see where one part ends and the next begins, so
    each part becomes a number of its own.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, DoubleType, FloatType, MapType, StructType

    if isinstance(kind, DoubleType | FloatType):
        return F.when(column == 0, F.lit(0.0).cast(kind)).otherwise(column)
    if isinstance(kind, StructType):
        numbers = [_number(column.getField(field.name), field.dataType) for field in kind.fields]
        return F.when(column.isNotNull(), F.xxhash64(*numbers))
    if isinstance(kind, ArrayType):
        return _together(F.transform(column, lambda item: _number(item, kind.elementType)))
    if isinstance(kind, MapType):
        entry = StructType().add("key", kind.keyType).add("value", kind.valueType)
        return _together(F.sort_array(F.transform(F.map_entries(column), lambda item: _number(item, entry))))
    if kind.simpleString() == "variant":
        return F.to_json(column)
    return column


def _number(column: Column, kind: DataType) -> Column:
    """A number that is never null: one for null, and one for each other value."""
    from pyspark.sql import functions as F

    return F.xxhash64(column.isNull(), hashable(column, kind))


def _together(numbers: Column) -> Column:
    from pyspark.sql import functions as F

    return F.when(numbers.isNotNull(), F.xxhash64(F.size(numbers), numbers))


def digest(rows: DataFrame) -> str:
    """One text for a multiset of rows: equal for equal rows, whatever their order. Reads them all."""
    from pyspark.sql import functions as F

    hashed = rows.select(row_hash(rows, rows.columns).alias("h"))
    wide = F.sum(F.col("h").cast("decimal(20,0)"))
    found = hashed.agg(F.count("*"), F.coalesce(F.bit_xor("h"), F.lit(0)), F.coalesce(wide, F.lit(0))).first()
    assert found is not None
    return "/".join(str(part) for part in found)
