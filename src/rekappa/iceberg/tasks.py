"""Iceberg's scan tasks (a data file with the row-level deletes that apply to it), chosen by us, read by Spark.

Iceberg's own compaction reads the same way: the tasks are staged under a name, and a scan of that name reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def read_tasks(
    spark: SparkSession, table: Any, tasks: Sequence[Any], split_size: int | None = None
) -> Iterator[DataFrame]:
    """The rows of exactly these tasks, row-level deletes applied. Spark must plan its scan inside the `with`.

    `split_size` is how many bytes of files one of Spark's tasks should read, Iceberg's default if None.
    """
    jvm: Any = spark._jvm
    key = str(uuid4())
    staged = jvm.java.util.ArrayList()
    for task in tasks:
        staged.add(task)
    cache = _table_cache(spark)
    sets = jvm.org.apache.iceberg.spark.ScanTaskSetManager.get()
    cache.add(key, table)
    sets.stageTasks(table, key, staged)
    options = {} if split_size is None else {"split-size": str(split_size), "file-open-cost": "1"}
    try:
        yield spark.read.format("iceberg").options(**options).load(key)
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
