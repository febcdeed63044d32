"""A schema's columns: what a sink names must be among them, and how they are written in SQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rekappa.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def columns_of(schema: StructType) -> dict[str, str]:
    """Columns and Spark's short names of their types."""
    return {field.name: field.dataType.simpleString() for field in schema}


def require_columns(rows: StructType, named: tuple[str, ...], setting: str, sink: str) -> None:
    """Refuse a sink whose key or event_time names a column that the job does not make."""
    present = {name.lower() for name in rows.names}
    absent = [name for name in named if name.split(".")[0].lower() not in present]
    if absent:
        raise SinkError(
            f"Cannot write sink {sink!r}: its {setting} names {', '.join(absent)}, which is not among the columns "
            f"{', '.join(rows.names)}",
            hint=f"Correct sinks.{sink}.{setting} or add the column to the job's result.",
        )


def stored_columns(rows: StructType, deletes: str | None, sink: str) -> StructType:
    """The columns that a sink keeps: all but the one that marks rows which remove their key."""
    if deletes is None:
        return rows
    from pyspark.sql.types import StructType

    require_columns(rows, (deletes,), "deletes", sink)
    marks = [field for field in rows if field.name.lower() == deletes.lower()]
    if marks[0].dataType.typeName() != "boolean":
        raise SinkError(
            f"Cannot write sink {sink!r}: its deletes names {deletes}, which is {marks[0].dataType.simpleString()}",
            hint="Make it BOOLEAN in the job, true for a row that removes its key.",
        )
    return StructType([field for field in rows if field not in marks])


def columns_ddl(columns: Mapping[str, str]) -> str:
    """The columns for CREATE TABLE, all nullable. Every name is quoted: some are words of SQL."""
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())


def quoted(name: str) -> str:
    """A column's name in Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"
