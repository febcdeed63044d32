"""Readers of their own for every place where a query reads a source, as Spark's Kafka source has them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rekappa.plan.model import reader
from rekappa.plan.store import PlanFile
from rekappa.replay.stream import REPLAY, AboutTo, ReplaySource, slice_scan
from rekappa.replay.values import ArchiveSource
from rekappa.spark.private import with_sources

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def with_readers(
    spark: SparkSession,
    rows: DataFrame,
    plan: PlanFile,
    job: str,
    sources: Mapping[str, ArchiveSource],
    about_to: AboutTo,
) -> DataFrame:
    """The same query, in which each further place that reads a source has a reader of its own.

    Spark gives a source that is joined with itself two readers of the topic, which may stand at different offsets.
    Readers are told apart by their place in the query, as Spark's log of offsets does.
    """
    seen: Counter[str] = Counter()

    def own_reader(source: Any) -> ReplaySource | None:
        name = source.toString().removeprefix(REPLAY).partition(" from ")[0]
        number = seen[name]
        seen[name] += 1
        if number == 0:
            return None
        scan = slice_scan(spark, plan, job, name, sources[name], _schema(source.schema()))
        return ReplaySource(scan, plan, job, reader(name, number), about_to)

    return with_sources(spark, rows, own_reader)


def _schema(java: Any) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(java.json()))
