"""Which files of an Iceberg table a window touches.

A file whose rows all lie in the window is *whole*: replacing the window drops it without reading it. One
that may hold rows of the window and others is at the *edge*: its other rows are written anew. All other
files stay as they are. The answer comes from the table's metadata: partitions and column bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from rekappa.recovery.span import Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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


@contextmanager
def read_tasks(spark: SparkSession, table: Any, tasks: tuple[Any, ...]) -> Iterator[DataFrame]:
    """The rows of exactly these tasks, row-level deletes applied. Valid inside the `with` only."""
    jvm: Any = spark._jvm
    key = str(uuid4())
    staged = jvm.java.util.ArrayList()
    for task in tasks:
        staged.add(task)
    cache = _table_cache(spark)
    sets = jvm.org.apache.iceberg.spark.ScanTaskSetManager.get()
    cache.add(key, table)
    sets.stageTasks(table, key, staged)
    try:
        yield spark.read.format("iceberg").load(key)
    finally:
        sets.removeTasks(table, key)
        cache.remove(key)


def listed(spark: SparkSession, iterable: Any) -> list[Any]:
    """A Java iterable as a list."""
    jvm: Any = spark._jvm
    return list(jvm.org.apache.iceberg.relocated.com.google.common.collect.Lists.newArrayList(iterable.iterator()))


def _table_cache(spark: SparkSession) -> Any:
    """Iceberg's cache of tables under rewrite. It has two methods named `get`; the gateway needs to be told which."""
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    cache = loader.loadClass("org.apache.iceberg.spark.SparkTableCache")
    method = cache.getMethod("get", gateway.new_array(jvm.java.lang.Class, 0))
    return method.invoke(None, gateway.new_array(jvm.java.lang.Object, 0))
