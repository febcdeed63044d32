"""Taking rows out of a table, or putting them back, by which commits they came with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rekappa.errors import RunError
from rekappa.iceberg.footprint import Footprint, footprint
from rekappa.iceberg.history import ancestors, noted
from rekappa.iceberg.lineage import REWIND, AddedRows, rows_of_files
from rekappa.iceberg.private import Filters, changed_files, listed
from rekappa.spark.multisets import without

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def tag_after(operation: str) -> str:
    """The tag that marks the table's state after an operation, so that what it did can be told as long as it is."""
    return f"rekappa_after_{operation}"


@dataclass(frozen=True)
class Withdrawal:
    """A selection: the rows that some commits added, in whatever files they are by now."""

    found: AddedRows

    def __str__(self) -> str:
        return "the rows of the abandoned batches"

    def of(self, rows: DataFrame) -> DataFrame:
        return without(rows, *self.others(rows))

    def others(self, rows: DataFrame) -> tuple[DataFrame, ...]:
        return (rows if self.found.rows is None else without(rows, self.found.rows),)

    def expression(self, spark: SparkSession, table: Any) -> Any:
        return Filters(spark).always

    def footprint(self, spark: SparkSession, table: Any, name: str, snapshot: int | None) -> Footprint:
        held = self.found.whole | self.found.mixed
        made = footprint(
            spark, table, Filters(spark).always, snapshot, whole=set(self.found.whole), touched=held.__contains__
        )
        if len(made.files) != len(held):
            raise RunError(f"Cannot take rows out of {name}: its files were rewritten meanwhile", hint="Try again.")
        return made


def require_all_there(spark: SparkSession, table: Any, name: str, found: AddedRows) -> None:
    """Refuse rows that somebody has changed or deleted since they were added: what is left of them can't be told."""
    if found.rows is None:
        return
    held = rows_of_files(spark, table, name, int(table.currentSnapshot().snapshotId()), found.mixed)
    missing = without(found.rows, held).count()
    if missing:
        raise RunError(
            f"Cannot take the abandoned rows out of {name}: {missing} of them were changed or deleted since",
            hint="Another writer, a publish or a DELETE went over them. Backfill the window instead.",
        )


def commit_of(table: Any, stamp: str, operation: str) -> int | None:
    """The snapshot by which an operation changed the table; None if it did not."""
    for snapshot in ancestors(table):
        if snapshot.summary().get(stamp) == operation:
            return int(snapshot.snapshotId())
    tag = tag_after(operation)
    if stamp == REWIND and table.refs().containsKey(tag):
        return int(table.refs().get(tag).snapshotId())
    return None


def is_done(table: Any, stamp: str, operation: str) -> bool:
    """Whether the operation has changed the table so, also where its snapshot has expired."""
    note = table.properties().get(noted(operation))
    return commit_of(table, stamp, operation) is not None or (note is not None and f'"{stamp}"' in note)


def taken_out(spark: SparkSession, table: Any, name: str, snapshot: int) -> tuple[DataFrame, DataFrame]:
    """What one commit took out of the table, and what it put in: rows, not files."""
    made = table.snapshot(snapshot)
    if made is None or made.parentId() is None or table.snapshot(made.parentId()) is None:
        raise RunError(f"Cannot tell what snapshot {snapshot} changed in {name}: it has expired")
    changes = changed_files(spark, table, made)
    before = [str(file.location()) for file in listed(spark, changes.removedDataFiles())]
    after = [str(file.location()) for file in listed(spark, changes.addedDataFiles())]
    old = rows_of_files(spark, table, name, int(made.parentId()), before)
    new = rows_of_files(spark, table, name, snapshot, after)
    return without(old, new), without(new, old)
