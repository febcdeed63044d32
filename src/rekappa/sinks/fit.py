"""Whether rows fit a table, said column by column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekappa.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_WIDENS = {
    ("tinyint", "smallint"), ("tinyint", "int"), ("tinyint", "bigint"), ("smallint", "int"), ("smallint", "bigint"),
    ("int", "bigint"), ("float", "double"),
}  # fmt: skip


def misfits(rows: StructType, table: StructType) -> list[str]:
    """Why rows of one schema can't be written to a table of another; empty when they can."""
    have = {field.name.lower(): field.dataType.simpleString() for field in rows}
    want = {field.name.lower(): field.dataType.simpleString() for field in table}
    problems = [f"column {name} is not in the table" for name in have if name not in want]
    problems += [f"the table's column {name} is not in the rows" for name in want if name not in have]
    problems += [
        f"column {name} is {kind} in the rows and {want[name]} in the table"
        for name, kind in have.items()
        if name in want and kind != want[name] and (kind, want[name]) not in _WIDENS
    ]
    return problems


def require_fit(rows: StructType, table: StructType, where: str) -> None:
    """Refuse rows that the table can't take, naming the columns."""
    problems = misfits(rows, table)
    if problems:
        raise SinkError(
            f"Cannot write to {where}: {'; '.join(problems)}",
            hint="Change the table (ALTER TABLE) or the job's select so that both have the same columns.",
        )


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


def columns_ddl(schema: StructType) -> str:
    """The columns for CREATE TABLE, all nullable. Every name is quoted: some are words of SQL."""
    named = [(field.name.replace("`", "``"), field.dataType.simpleString()) for field in schema]
    return ", ".join(f"`{name}` {kind}" for name, kind in named)
