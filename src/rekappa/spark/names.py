"""Names of columns as Spark's SQL and its functions read them: a dot or a backtick in one means nothing more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Batches = Callable[[Iterable[Any]], Iterator[Any]]


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def map_batches(rows: DataFrame, function: Batches, schema: StructType | str) -> DataFrame:
    """`mapInArrow`, which itself takes a column's name for an expression, for rows whose names may be anything."""
    placed = rows.toDF(*(f"c{at}" for at in range(len(rows.columns))))
    return placed.mapInArrow(partial(_named, function, rows.columns), schema)


def _named(function: Batches, names: list[str], batches: Iterable[Any]) -> Iterator[Any]:
    return function(batch.rename_columns(names) for batch in batches)
