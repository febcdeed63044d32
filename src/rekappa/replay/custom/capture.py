"""The stateful operator of a job, taken out of it: the job's function is called, and where it asks Spark for state,
what it asked is noted and a stand-in for the result is given back, so that the steps after it are made as well.

    with capturing(spark) as captured:
        results = job.results(probes)
    captured[0].frame     # what goes into the operator
    captured[0].result    # the stand-in that the results are made from

`GroupedData.transformWithState` and the like are ordinary methods of Python classes, which others can stand in for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from rekappa.spark.private import stream_leaf

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

GROUPED = ("transformWithState", "transformWithStateInPandas", "applyInPandasWithState")
PLAIN_DEDUP = ("dropDuplicates", "drop_duplicates")
DEDUP = (*PLAIN_DEDUP, "dropDuplicatesWithinWatermark")


@dataclass(frozen=True, slots=True)
class StateCall:
    """One call for state: which method, on what frame, by which keys, with which arguments. `result` stands in for what
    Spark would give; `schema` is its columns."""

    method: str
    frame: DataFrame
    keys: tuple[Column, ...]
    arguments: Mapping[str, Any]
    schema: StructType
    result: DataFrame
    initial: tuple[DataFrame, tuple[Column, ...]] | None = field(default=None)


@contextmanager
def capturing(spark: SparkSession) -> Iterator[list[StateCall]]:
    """While it is open, calls for state are noted in the list that it gives, not made."""
    from pyspark.sql.classic.dataframe import DataFrame
    from pyspark.sql.pandas.group_ops import PandasGroupedOpsMixin

    seen: list[StateCall] = []
    replaced: list[tuple[type, str, Any]] = []

    def stand_in(owner: type, name: str, made: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        replaced.append((owner, name, original))
        setattr(owner, name, made(original))

    for name in GROUPED:
        stand_in(PandasGroupedOpsMixin, name, partial(_grouped, spark, name, seen))
    for name in DEDUP:
        stand_in(DataFrame, name, partial(_without_duplicates, spark, name, seen))
    for name in ("groupBy", "groupby"):
        stand_in(DataFrame, name, _remembering)
    try:
        yield seen
    finally:
        for owner, name, original in replaced:
            setattr(owner, name, original)


def _remembering(original: Any) -> Any:
    """`groupBy`, whose result knows by what it groups."""

    def grouped(self: Any, *columns: Any) -> Any:
        found = original(self, *columns)
        named = columns[0] if len(columns) == 1 and isinstance(columns[0], list) else columns
        found._rekappa_keys = tuple(_column(self, one) for one in named)
        return found

    return grouped


def _column(frame: DataFrame, named: Any) -> Column:
    if isinstance(named, int):
        return frame[named - 1]
    return frame[named] if isinstance(named, str) else named


def _grouped(spark: SparkSession, name: str, seen: list[StateCall], original: Any) -> Any:
    signature = inspect.signature(original)

    def noted(*args: Any, **kwargs: Any) -> DataFrame:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        grouped = arguments.pop("self")
        schema = parsed(spark, arguments["outputStructType"])
        initial = arguments.get("initialState")
        first = (initial._df, initial._rekappa_keys) if initial is not None else None
        asked = StateCall(
            name, grouped._df, grouped._rekappa_keys, arguments, schema, stream_leaf(spark, schema), first
        )
        seen.append(asked)
        return asked.result

    return noted


def _without_duplicates(spark: SparkSession, name: str, seen: list[StateCall], original: Any) -> Any:
    def noted(self: DataFrame, subset: list[str] | None = None) -> DataFrame:
        if subset is None and name != "dropDuplicatesWithinWatermark":
            # Of rows that are equal in everything it does not matter which one passes.
            found: DataFrame = original(self)
            return found
        names = list(subset) if subset is not None else self.columns
        keys = tuple(self[one] for one in names)
        asked = StateCall(name, self, keys, {"subset": names}, self.schema, stream_leaf(spark, self.schema))
        seen.append(asked)
        return asked.result

    return noted


def parsed(spark: SparkSession, schema: Any) -> StructType:
    """A schema that a job gives as a type or as text."""
    found: Any = spark._parse_ddl(schema) if isinstance(schema, str) else schema
    return cast("StructType", found)
