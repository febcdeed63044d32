"""Which files of an Iceberg table a window touches.

A file whose rows all lie in the window is *whole*: replacing the window drops it without reading it. One
that may hold rows of the window and others is at the *edge*: its other rows are written anew. All other
files stay as they are. The answer comes from the table's metadata: partitions and column bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rekappa.iceberg.span import Span
from rekappa.iceberg.tasks import listed

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
        """The data files that replacing the window takes out."""
        return tuple(task.file() for task in (*self.whole, *self.edge))


def footprint(spark: SparkSession, table: Any, span: Span, snapshot: int | None) -> Footprint:
    """Sort the files of one snapshot. `snapshot` None is a table without any."""
    if snapshot is None:
        return Footprint(None)
    jvm: Any = spark._jvm
    expression = span.expression(spark, table)
    scan = table.newScan().useSnapshot(snapshot).filter(expression).includeColumnStats()
    strict = jvm.org.apache.iceberg.expressions.StrictMetricsEvaluator(table.schema(), expression)
    always = jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue()
    whole: list[Any] = []
    edge: list[Any] = []
    partitions: set[str] = set()
    for task in listed(spark, scan.planFiles()):
        covered = task.residual().equals(always) or strict.eval(task.file())
        (whole if covered else edge).append(task)
        if task.spec().isPartitioned():
            partitions.add(str(task.spec().partitionToPath(task.file().partition())))
    return Footprint(snapshot, tuple(whole), tuple(edge), tuple(sorted(partitions)))
