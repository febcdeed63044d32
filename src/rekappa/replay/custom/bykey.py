"""The stateful operator of a job over rows that know their slice: together by key, in slice order, to its own code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rekappa.errors import RunError
from rekappa.plan.watermarks import Trace
from rekappa.replay.custom.batches import (
    ALIVE,
    BATCH,
    INITIAL,
    Columns,
    alive_in_arrow,
    alive_in_pandas,
    first_in_arrow,
    frames_in_pandas,
    rows_in_arrow,
)
from rekappa.replay.custom.capture import DEDUP, StateCall, parsed
from rekappa.replay.custom.function import Applying
from rekappa.replay.custom.handle import KeyHandle
from rekappa.replay.custom.processor import Processing
from rekappa.spark.names import quoted
from rekappa.spark.plans.jvm import always_null
from rekappa.spark.private import analysed, frame_of, optimised, with_leaves

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession
    from pyspark.sql.types import StructType

SLICE, ARRIVAL = "__rekappa_slice__", "__rekappa_arrival__"
MARKS = (SLICE, ARRIVAL)
"""The columns that are carried beside a row's own: the slice that it is read in, and its place there."""
LATE = "late"
_NEVER_NULL = frozenset({"byte", "short", "integer", "long", "boolean"})
"""Types whose pandas columns can't hold a null."""
DELAY = "spark.watermarkDelayMs"
"""How Spark marks the column that a watermark goes by."""


def by_key(
    spark: SparkSession,
    asked: StateCall,
    rows: Callable[[int], DataFrame | None],
    marks: Trace,
    tasks: int,
    late: Observation | None = None,
    *,
    alive: bool = False,
    drops_late: bool = True,
) -> DataFrame:
    """What the operator gives, and after its columns `BATCH`: the batch in which a row came out.

    `rows` answers the rows of a source's leaf, with `MARKS`. `late` will know how many rows were late (`LATE`). With
    `alive` the answer is which keys hold state after the last batch (`ALIVE`).
    """
    from pyspark.sql import functions as F

    base = frame_of(spark, with_leaves(spark, analysed(asked.frame), rows, MARKS))
    if SLICE not in base.columns:
        raise RunError(
            "Cannot run in slice order: a step before the stateful operator does not pass on what it is given",
            hint="Use --mode ordered.",
        )
    event_time, empty = _event_time(asked.frame.schema), _empty(spark, asked, base)
    if event_time is not None and drops_late and _drops_late(asked):
        on_time = _on_time(base, event_time, marks)
        if late is not None:
            base = base.observe(late, F.count_if(~on_time).alias(LATE))
        base = base.where(on_time)
    names = tuple(asked.frame.columns)
    # A key is one of the row's own columns: Spark refuses others.
    columns = Columns(len(asked.keys), names, empty=empty.intersection(names))
    keys = [f"key_{number}" for number in range(columns.keys)]
    sent = tuple(name for name in names if name not in columns.empty)
    own = [base[quoted(name)] for name in sent]
    chosen = base.select(*asked.keys, *own, *MARKS).toDF(*keys, *_numbered("row", sent), *MARKS)
    if asked.method in DEDUP:
        chosen = chosen.withColumns({name: _told_apart(chosen, name) for name in keys})
    if asked.initial is not None:
        columns = Columns(columns.keys, columns.names, tuple(asked.initial[0].columns))
        chosen = _with_initial(chosen, asked.initial, keys, columns)
    together = chosen.repartition(tasks, *keys).sortWithinPartitions(*keys, *MARKS)
    if asked.method == "applyInPandasWithState":
        columns, together = _masked(together, columns)
    return _given_to(spark, asked, together, columns, marks, event_time, alive)


def _empty(spark: SparkSession, asked: StateCall, base: DataFrame) -> frozenset[str]:
    """Columns that are null in every row, where the operator's own code gets Rows."""
    if asked.method != "transformWithState" or asked.initial is not None:
        return frozenset()
    return always_null(optimised(spark, base))


def _told_apart(frame: DataFrame, key: str) -> Column:
    """A key as de-duplication tells it apart: by its bytes: 0.0 and -0.0, which sort as equals, differ."""
    from pyspark.sql import functions as F

    return F.col(key).cast("string") if frame.schema[key].dataType.typeName() in ("float", "double") else F.col(key)


def _masked(frame: DataFrame, columns: Columns) -> tuple[Columns, DataFrame]:
    """The frame without nulls in columns whose type pandas would change for them, and beside it where they are."""
    from pyspark.sql import functions as F

    fields = frame.schema.fields[: columns.keys + len(columns.names)]
    masked = tuple(at for at, field in enumerate(fields) if field.dataType.typeName() in _NEVER_NULL)
    filled = {fields[at].name: F.coalesce(F.col(fields[at].name), F.lit(0).cast(fields[at].dataType)) for at in masked}
    nulls = (F.col(fields[at].name).isNull().alias(f"null_{at}") for at in masked)
    chosen = frame.select("*", *nulls).withColumns(filled)
    return Columns(columns.keys, columns.names, columns.initial, masked), chosen


def micros_of(frame: DataFrame, column: str) -> Column:
    """A time of a frame as microseconds since 1970, as Spark holds it; of a window its end."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    kind, found = frame.schema[column].dataType, F.col(quoted(column))
    if isinstance(kind, StructType):
        end = kind.fields[1]
        kind, found = end.dataType, found[end.name]
    if kind.typeName() == "timestamp_ntz":
        return F.timestamp_diff("MICROSECOND", F.lit("1970-01-01").cast("timestamp_ntz"), found)
    return F.unix_micros(found)


def _given_to(
    spark: SparkSession,
    asked: StateCall,
    rows: DataFrame,
    columns: Columns,
    marks: Trace,
    event_time: str | None,
    alive: bool,
) -> DataFrame:
    from pyspark.sql.types import IntegerType, StructField, StructType

    given = asked.arguments
    fields = [StructField(field.name, field.dataType, True) for field in asked.schema.fields]
    schema = StructType([*fields, StructField(BATCH, IntegerType())])
    if asked.method in DEDUP:
        at = lasts = None
        if asked.method == "dropDuplicatesWithinWatermark" and event_time is not None:
            at, lasts = columns.names.index(event_time), asked.frame.schema[event_time].metadata[DELAY] * 1000
        return rows.mapInArrow(first_in_arrow(columns, at, marks.marks, lasts), schema)
    pandas = asked.method.endswith(("InPandas", "InPandasWithState"))
    make: Callable[[], Any]
    if asked.method == "applyInPandasWithState":
        make = partial(
            Applying, given["func"], parsed(spark, given["stateStructType"]), str(given["timeoutConf"]),
            list(columns.names), watermarked=event_time is not None,
        )  # fmt: skip
    else:
        processor, mode = given["statefulProcessor"], str(given["timeMode"])
        named = tuple(asked.frame.select(*asked.keys).columns)
        make = partial(Processing, processor, mode, named, _schemas(spark, processor), pandas=pandas)
    if alive:
        held = ", ".join(f"{name} {kind}" for name, kind in ALIVE.items())
        if pandas:
            return rows.mapInPandas(alive_in_pandas(make, columns, marks.marks), held)
        return rows.mapInArrow(alive_in_arrow(make, columns, marks.marks), held)
    if pandas:
        return rows.mapInPandas(frames_in_pandas(make, columns, marks.marks), schema)
    return rows.mapInArrow(rows_in_arrow(make, columns, marks.marks, schema), schema)


def _event_time(schema: StructType) -> str | None:
    return next((field.name for field in schema.fields if DELAY in (field.metadata or {})), None)


def _drops_late(asked: StateCall) -> bool:
    """Spark drops late rows before custom state only where that goes by event time; before de-duplication always."""
    if asked.method == "applyInPandasWithState":
        return str(asked.arguments["timeoutConf"]) == "EventTimeTimeout"
    if asked.method.startswith("transformWithState"):
        return str(asked.arguments["timeMode"]).lower() == "eventtime"
    return True


def _on_time(frame: DataFrame, event_time: str, marks: Trace) -> Column:
    from pyspark.sql import functions as F

    # As text: one by one, thousands of numbers would take seconds to reach Spark.
    late = F.expr(f"array({', '.join(f'{mark * 1000}L' for mark in marks.late)})")
    moment = micros_of(frame, event_time)
    return moment.isNull() | (moment > F.get(late, F.col(SLICE)))


def _with_initial(
    rows: DataFrame, initial: tuple[DataFrame, tuple[Column, ...]], keys: list[str], columns: Columns
) -> DataFrame:
    """The rows, and each key's initial state before the first of them."""
    from pyspark.sql import functions as F

    frame, by = initial
    state = frame.select(*by, *(frame[quoted(name)] for name in frame.columns))
    named = state.toDF(*keys, *_numbered("initial", columns.initial))
    marked = named.withColumns({SLICE: F.lit(INITIAL), ARRIVAL: F.lit(0).cast("bigint")})
    both = rows.unionByName(marked, allowMissingColumns=True)
    return both.select(*keys, *_numbered("row", columns.names), *_numbered("initial", columns.initial), *MARKS)


def _numbered(word: str, names: tuple[str, ...]) -> list[str]:
    return [f"{word}_{number}" for number in range(len(names))]


def _schemas(spark: SparkSession, processor: Any) -> Mapping[str, StructType]:
    """The schemas that a processor declares as text, read by Spark: a worker has no parser."""
    from pyspark import cloudpickle

    found: dict[str, StructType] = {}

    class Noting(KeyHandle):
        def _schema(self, declared: Any) -> StructType:
            if isinstance(declared, str):
                found[declared] = parsed(spark, declared)
            return parsed(spark, declared)

    copy = cloudpickle.loads(cloudpickle.dumps(processor))  # type: ignore[no-untyped-call]
    copy.init(Noting())
    return found
