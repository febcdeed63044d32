"""Past events from a Hive table.

A table with a `__metadata__` column is read as it is. For any other, the metadata that a Hive table can't know
is filled in: the topic is the table's name, partition 0, no offset, key or headers; the ingestion time is the
event time, and the region is the table's `region` column, null without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rekappa.config.model import HiveCandidate, Source
from rekappa.errors import SourceError
from rekappa.record import METADATA
from rekappa.sources.decode import metadata_type
from rekappa.sources.iceberg import narrowed, shaped
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def read_hive(
    spark: SparkSession,
    candidate: HiveCandidate,
    source: Source,
    payload: StructType,
    reads: Window | None,
    regions: Sequence[str],
    columns: Sequence[str] | None,
) -> DataFrame:
    """A batch of the table in the record shape. `where` narrows it to some of the table's partitions."""
    from pyspark.errors import AnalysisException

    name = f"spark_catalog.`{candidate.database}`.`{candidate.table}`"
    try:
        rows = spark.table(name)
    except AnalysisException:
        raise SourceError(
            f"Cannot read Hive table {candidate.database}.{candidate.table}: it does not exist",
            hint="Check database and table, and that the session has Hive support (spark.sql.catalogImplementation).",
        ) from None
    if candidate.where:
        check_where(spark, candidate)
        rows = rows.where(candidate.where)
    if METADATA not in rows.columns:
        rows = _with_metadata(rows, candidate, source)
    return shaped(narrowed(rows, reads, regions), payload, columns)


def check_where(spark: SparkSession, candidate: HiveCandidate) -> None:
    """Refuse a `where` that Spark can't read, or that names anything but partition columns of the table."""
    from pyspark.errors import ParseException

    assert candidate.where is not None
    table = f"{candidate.database}.{candidate.table}"
    listed = spark.catalog.listColumns(f"spark_catalog.{table}")
    partitions = {column.name.lower() for column in listed if column.isPartition}
    known = f"Partition columns of {table}: {', '.join(sorted(partitions)) or 'none'}."
    session = spark._jsparkSession
    try:
        expression = session.sessionState().sqlParser().parseExpression(candidate.where)
    except ParseException as error:
        first = str(error).strip().splitlines()[0]
        raise SourceError(f"Cannot use where {candidate.where!r}: {first}", hint=known) from None
    named = expression.references().iterator()
    found = set()
    while named.hasNext():
        found.add(named.next().name().strip("`").lower())
    unknown = sorted(found - partitions)
    if unknown:
        raise SourceError(
            f"Cannot use where {candidate.where!r}: {unknown[0]!r} is not a partition column of {table}", hint=known
        )


def _with_metadata(rows: DataFrame, candidate: HiveCandidate, source: Source) -> DataFrame:
    from pyspark.sql import functions as F

    values = {
        "topic": F.lit(candidate.table),
        "partition": F.lit(0),
        "kafka_ingestion_ts": F.col(source.event_time),
        "region": F.col("region") if "region" in rows.columns else F.lit(None),
    }
    kinds = metadata_type()
    made = [values.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in kinds.fields]
    return rows.withColumn(METADATA, F.when(F.lit(1) == F.lit(1), F.struct(*made).cast(kinds)))
