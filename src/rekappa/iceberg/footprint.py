"""Which files of an Iceberg table a selection of its rows touches.

A file whose rows are all selected is *whole*: replacing them drops it without reading it. One that may hold selected
rows and others is at the *edge*: its other rows are written anew. All other files stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rekappa.iceberg.private import Filters, planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Footprint:
    """`whole` and `edge` are Iceberg scan tasks: a data file with the row-level deletes that apply to it."""

    snapshot: int | None
    whole: tuple[Any, ...] = ()
    edge: tuple[Any, ...] = ()
    partitions: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Any, ...]:
        """The data files that replacing the rows takes out."""
        return tuple(task.file() for task in (*self.whole, *self.edge))


def covered_files(spark: SparkSession, table: Any, expression: Any, snapshot: int) -> set[str]:
    """The files all of whose rows fit the expression, by their partition or their columns' bounds."""
    filters = Filters(spark)
    strict, always = filters.covering(table, expression), filters.always
    scan = table.newScan().useSnapshot(snapshot).filter(expression).includeColumnStats()
    return {
        str(task.file().location())
        for task in planned(spark, scan)
        if task.residual().equals(always) or strict.eval(task.file())
    }


def footprint(
    spark: SparkSession,
    table: Any,
    expression: Any,
    snapshot: int | None,
    *,
    whole: set[str],
    touched: Callable[[str], bool] = lambda file: True,
) -> Footprint:
    """The files of one snapshot that may hold rows that fit the expression. `snapshot` None is a table without any."""
    if snapshot is None:
        return Footprint(None)
    # A task that knows the filter would not read all of its file: what must survive would be lost.
    scan = table.newScan().useSnapshot(snapshot).filter(expression).ignoreResiduals()
    parts: dict[bool, list[Any]] = {True: [], False: []}
    partitions: set[str] = set()
    for task in planned(spark, scan):
        location = str(task.file().location())
        if not touched(location):
            continue
        parts[location in whole].append(task)
        if task.spec().isPartitioned():
            partitions.add(str(task.spec().partitionToPath(task.file().partition())))
    return Footprint(snapshot, tuple(parts[True]), tuple(parts[False]), tuple(sorted(partitions)))
