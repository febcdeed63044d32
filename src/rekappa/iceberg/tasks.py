"""Iceberg's scan tasks (a data file with the row-level deletes that apply to it), chosen by us, read by Spark.

Iceberg's own compaction reads the same way: the tasks are staged under a name, and a scan of that name reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from rekappa.iceberg.private import staged_tasks, table_cache

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def read_tasks(
    spark: SparkSession, table: Any, tasks: Sequence[Any], split_size: int | None = None
) -> Iterator[DataFrame]:
    """The rows of exactly these tasks, row-level deletes applied. Spark must plan its scan inside the `with`.

    A task that was planned with a filter skips row groups that can't match it: plan with `ignoreResiduals` to read
    all. `split_size` is how many bytes of files one of Spark's tasks should read, Iceberg's default if None.
    """
    jvm: Any = spark._jvm
    key = str(uuid4())
    staged = jvm.java.util.ArrayList()
    for task in tasks:
        staged.add(task)
    cache, sets = table_cache(spark), staged_tasks(spark)
    cache.add(key, table)
    sets.stageTasks(table, key, staged)
    options = {} if split_size is None else {"split-size": str(split_size), "file-open-cost": "1"}
    try:
        yield spark.read.format("iceberg").options(**options).load(key)
    finally:
        sets.removeTasks(table, key)
        cache.remove(key)
