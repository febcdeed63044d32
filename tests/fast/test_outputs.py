"""What a job makes against what its sinks declare, by the schema alone."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from rekappa.config.model import Sink, SinkBase
from rekappa.errors import AppError
from rekappa.spark.outputs import require_made, require_time

COLUMNS = ("id", "Day", "window")


def sink(**declared: Any) -> SinkBase:
    made = TypeAdapter(Sink).validate_python({"type": "iceberg", "table": "lake.a.b", **declared})
    assert isinstance(made, SinkBase)
    return made


@pytest.mark.parametrize(
    ("declared", "named"),
    [
        ({"key": ["id", "nope"]}, "its key names nope"),
        ({"key": ["nope", "neither"]}, "its key names nope, neither"),
        ({"event_time": "event_ts"}, "its event_time names event_ts"),
        ({"mode": "upsert", "key": ["id"], "version": "rev"}, "its version names rev"),
    ],
)
def test_columns_that_the_job_does_not_make_are_named(declared: dict[str, Any], named: str) -> None:
    with pytest.raises(AppError, match="Cannot fill sink 'out'") as refused:
        require_made(COLUMNS, "out", sink(**declared))
    assert named in refused.value.message
    assert "id, Day, window" in refused.value.message
    assert "sinks.out." in (refused.value.hint or "")


def test_columns_are_found_whatever_their_case_and_inside_a_struct() -> None:
    require_made(COLUMNS, "out", sink(key=["ID"], event_time="window.start"))
    require_made(("a.b", "at"), "out", sink(key=["a.b"], event_time="at"))


NO_TIMES: list[DataType] = [StringType(), LongType(), BooleanType(), ArrayType(TimestampType())]
TIMES: list[DataType] = [TimestampType(), TimestampNTZType(), DateType()]


@pytest.mark.parametrize("kind", NO_TIMES, ids=lambda kind: kind.simpleString())
def test_an_event_time_must_be_a_time(kind: DataType) -> None:
    with pytest.raises(AppError, match=f"it is a {kind.simpleString().upper()}"):
        require_time(StructType([StructField("at", kind)]), "out", "at")


@pytest.mark.parametrize("kind", TIMES, ids=lambda kind: kind.simpleString())
def test_these_are_times(kind: DataType) -> None:
    schema = StructType([StructField("at", kind), StructField("window", StructType([StructField("start", kind)]))])
    for column in ("at", "AT", "window.start", None, "elsewhere"):
        require_time(schema, "out", column)


def test_a_window_is_no_time_but_has_some() -> None:
    window = StructType([StructField("start", TimestampType()), StructField("end", TimestampType())])
    with pytest.raises(AppError) as refused:
        require_time(StructType([StructField("window", window)]), "out", "window")
    assert refused.value.hint == "Name window.start."
