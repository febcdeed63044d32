"""Readers of their own for every place where a query reads a source, as Spark's Kafka source has them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rekappa.plan.model import reader
from rekappa.plan.store import PlanFile
from rekappa.replay.stream import REPLAY, AboutTo, ReplaySource, slice_scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def with_readers(
    spark: SparkSession,
    rows: DataFrame,
    plan: PlanFile,
    job: str,
    tables: Mapping[str, str],
    about_to: AboutTo,
) -> DataFrame:
    """The same query, in which each further place that reads a source has a reader of its own.

    Spark gives a source that is joined with itself two readers of the topic, which may stand at different offsets.
    Readers are told apart by their place in the query, as Spark's log of offsets does.
    """
    from pyspark.sql import DataFrame

    class Swap:
        """A Scala function that is called with every node of the query, from the top, left to right."""

        class Java:
            implements = ("scala.PartialFunction",)

        def __init__(self) -> None:
            self.seen: Counter[str] = Counter()

        def applyOrElse(self, node: Any, default: Any) -> Any:
            if node.getClass().getSimpleName() != "StreamingExecutionRelation":
                return default.apply(node)
            name = node.source().toString().removeprefix(REPLAY).partition(" from ")[0]
            number = self.seen[name]
            self.seen[name] += 1
            if number == 0:
                return default.apply(node)
            read = _schema(node.source().schema())
            own = ReplaySource(
                slice_scan(spark, plan, job, name, tables[name], read), plan, job, reader(name, number), about_to
            )
            return node.copy(own, node.output(), node.catalogTable(), spark._jsparkSession)

    java: Any = rows._jdf
    swapped = java.queryExecution().analyzed().transform(Swap())
    jvm: Any = spark._jvm
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, swapped), spark)


def _schema(java: Any) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(java.json()))
