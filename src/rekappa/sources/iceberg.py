"""Events from the archive: over a stretch of ingestion time, or followed as commits land."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rekappa.config.model import IcebergCandidate
from rekappa.errors import SourceError
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.past import rows_at
from rekappa.plan.plan import SourcePlan
from rekappa.record import INGESTION, METADATA, REGION
from rekappa.sources.decode import metadata_type, nullable
from rekappa.spark.names import quoted
from rekappa.spark.times import within
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


def read_archive(
    spark: SparkSession,
    candidate: IcebergCandidate,
    payload: StructType,
    reads: Window | None,
    regions: Sequence[str],
    columns: Sequence[str] | None,
    planned: SourcePlan | None = None,
) -> DataFrame:
    """A batch of the archive. Time, regions and columns are pushed into Iceberg's scan."""
    rows = _existing(spark, candidate.table) if planned is None else _as_planned(spark, candidate.table, planned)
    return shaped(narrowed(rows, reads, regions), payload, columns)


def follow_archive(spark: SparkSession, candidate: IcebergCandidate, payload: StructType) -> DataFrame:
    """A stream of the archive's appends as they land; compaction adds nothing to it."""
    _existing(spark, candidate.table)
    options = {"streaming-skip-overwrite-snapshots": "true", "streaming-skip-delete-snapshots": "true"}
    stream = spark.readStream.format("iceberg").options(**options).load(candidate.table)
    return shaped(stream, payload, None)


def narrowed(rows: DataFrame, reads: Window | None, regions: Sequence[str]) -> DataFrame:
    """Only rows ingested in [start, end), of these regions (all, if none is named)."""
    from pyspark.sql import functions as F

    if reads is not None:
        rows = rows.where(within(F.col(INGESTION), reads))
    if regions:
        rows = rows.where(F.col(REGION).isin(list(regions)))
    return rows


def shaped(rows: DataFrame, payload: StructType, columns: Sequence[str] | None, *besides: str) -> DataFrame:
    """Exactly the record's columns: a field that the table does not have yet is null, one that only it has is
    left out. `columns` names the payload columns to keep, None all; `__metadata__` is always there. Columns `besides`
    follow as they are."""
    return rows.select(*shape(rows.schema, payload, columns), *besides)


def shape(present: StructType, payload: StructType, columns: Sequence[str] | None = None) -> list[Column]:
    """The record's columns, `__metadata__` last, of rows that are as `present` says."""
    from pyspark.sql import functions as F

    known = {field.name: field for field in present.fields}
    made = []
    for field in payload.fields:
        if columns is not None and field.name not in columns:
            continue
        if field.name not in known:
            made.append(F.lit(None).cast(field.dataType).alias(field.name))
        elif nullable(known[field.name].dataType) != field.dataType:
            made.append(F.col(quoted(field.name)).cast(field.dataType).alias(field.name))
        else:
            made.append(F.col(quoted(field.name)).alias(field.name, metadata={}))
    kept = F.col(METADATA)
    if known[METADATA].dataType != metadata_type():
        kept = kept.cast(metadata_type()).alias(METADATA)
    return [*made, kept]


def _as_planned(spark: SparkSession, table: str, planned: SourcePlan) -> DataFrame:
    """The archive at the snapshot of the plan; a table that was empty then is empty still."""
    if planned.snapshot is None:
        return _existing(spark, table).limit(0)
    _existing(spark, table)
    if load_table(spark, table).snapshot(planned.snapshot) is None:
        raise SourceError(
            f"Cannot read archive table {table!r} as planned: its snapshot {planned.snapshot} has expired",
            hint="Plan again: start a new backfill.",
        )
    return rows_at(spark, table, planned.snapshot)


def _existing(spark: SparkSession, table: str) -> DataFrame:
    from pyspark.errors import AnalysisException

    try:
        return spark.table(table)
    except AnalysisException:
        raise SourceError(
            f"Cannot read archive table {table!r}: it does not exist", hint="Fill it first: rekappa archive run APP"
        ) from None
