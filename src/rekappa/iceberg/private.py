"""Every Java class of Iceberg that rekappa calls, in one place.

Iceberg's own Spark actions are built from the same classes, but not all of them are meant for others: a new version
may move or change them. `rekappa.spark.releases` refuses an unknown one; `tests/spark/test_private.py` calls each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def java_table(spark: SparkSession, name: str) -> Any:
    """Iceberg's own table object, with its newest metadata."""
    table = _iceberg(spark).spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
    table.refresh()
    return table


def metadata_of(spark: SparkSession, table: Any) -> dict[str, Any]:
    """The table's metadata as Iceberg writes it, in one call: asking snapshot by snapshot takes a call for each."""
    found: dict[str, Any] = json.loads(_iceberg(spark).TableMetadataParser.toJson(table.operations().current()))
    return found


def listed(spark: SparkSession, iterable: Any) -> list[Any]:
    """A Java iterable as a list."""
    lists = _iceberg(spark).relocated.com.google.common.collect.Lists
    return list(lists.newArrayList(iterable.iterator()))


def planned(spark: SparkSession, scan: Any) -> list[Any]:
    """The tasks of a scan: data files with the row-level deletes that apply to them."""
    tasks = scan.planFiles()
    try:
        return listed(spark, tasks)
    finally:
        tasks.close()


def changed_files(spark: SparkSession, table: Any, snapshot: Any) -> Any:
    """What one commit did: `addedDataFiles`, `removedDataFiles`, `addedDeleteFiles`."""
    return _iceberg(spark).SnapshotChanges.builderFor(table).snapshot(snapshot).build()


def schema_json(spark: SparkSession, schema: Any) -> str:
    return str(_iceberg(spark).SchemaParser.toJson(schema))


def sort_order(spark: SparkSession, table: Any, columns: Iterable[str]) -> Any:
    order = _iceberg(spark).SortOrder.builderFor(table.schema())
    for column in columns:
        order = order.asc(column)
    return order.build()


def rewrite_action(spark: SparkSession, table: Any) -> Any:
    """Iceberg's compaction of data files."""
    return _iceberg(spark).spark.actions.SparkActions.get(spark._jsparkSession).rewriteDataFiles(table)


class Filters:
    """Iceberg's expressions over columns, and what files say of them."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._list = jvm.java.util.ArrayList
        self._package = _iceberg(spark).expressions
        self._make = self._package.Expressions

    def at_least(self, column: str, value: Any) -> Any:
        return self._make.greaterThanOrEqual(column, value)

    def at_most(self, column: str, value: Any) -> Any:
        return self._make.lessThanOrEqual(column, value)

    def below(self, column: str, value: Any) -> Any:
        return self._make.lessThan(column, value)

    def among(self, column: str, values: Iterable[Any]) -> Any:
        java = self._list()
        for value in values:
            java.add(value)
        return getattr(self._make, "in")(column, java)

    def all_of(self, parts: Sequence[Any]) -> Any:
        return reduce(getattr(self._make, "and"), parts, self.always)

    @property
    def always(self) -> Any:
        return self._make.alwaysTrue()

    @property
    def never(self) -> Any:
        return self._make.alwaysFalse()

    def covering(self, table: Any, expression: Any) -> Any:
        """Its `eval(file)` is true only if every row of the file fits, by the file's bounds."""
        return self._package.StrictMetricsEvaluator(table.schema(), expression)

    def touching(self, table: Any, expression: Any) -> Any:
        """Its `eval(file)` is false only if no row of the file fits, by the file's bounds."""
        return self._package.InclusiveMetricsEvaluator(table.schema(), expression)

    def partition_fits(self, table: Any, expression: Any, file: Any) -> bool:
        """False only if no row of the file's partition can fit."""
        spec = table.specs().get(file.specId())
        if spec.isUnpartitioned():
            return True
        projected = self._package.Projections.inclusive(spec).project(expression)
        return bool(self._package.Evaluator(spec.partitionType(), projected).eval(file.partition()))


def staged_tasks(spark: SparkSession) -> Any:
    """Where scan tasks are put under a name for a scan of that name to read."""
    return _iceberg(spark).spark.ScanTaskSetManager.get()


def table_cache(spark: SparkSession) -> Any:
    """Iceberg's cache of tables under rewrite. It has two methods named `get`; the gateway needs to be told which."""
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    cache = loader.loadClass("org.apache.iceberg.spark.SparkTableCache")
    method = cache.getMethod("get", gateway.new_array(jvm.java.lang.Class, 0))
    return method.invoke(None, gateway.new_array(jvm.java.lang.Object, 0))


def _iceberg(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg
