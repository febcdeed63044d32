"""The replay source: a Spark stream that reads one planned slice per micro-batch.

    stream = replay_stream(spark, plan, "sessions", "playbacks", ArchiveSource("lake.events.playbacks", record))

Offset {"slice": n} means that the slices below n have been read; "closed" marks the batches after the last. Spark is
always told of one slice more, so all sources of a query advance by one slice per micro-batch, together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rekappa.plan.model import NOTHING
from rekappa.plan.store import PlanFile
from rekappa.record import METADATA
from rekappa.replay.closing import CLOSED, FORCED, SLICE
from rekappa.replay.driver_source import DriverSource
from rekappa.replay.scan import SliceScan
from rekappa.replay.values import ArchiveSource
from rekappa.spark import private

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


REPLAY = "replay of "


@dataclass(frozen=True, slots=True)
class AboutTo:
    """What to call just before Spark logs a batch: `read` for one that reads a slice, with its number; `close` for the
    batches without rows that follow the last slice, with which of them. Without `close` there are none."""

    read: Callable[[int], None] | None = None
    close: Callable[[int], None] | None = None


class ReplaySource(DriverSource):
    """The slices of a plan, one for each micro-batch."""

    class Java:
        implements = private.SOURCE

    def __init__(self, scan: SliceScan, plan: PlanFile, job: str, reader: str, about_to: AboutTo) -> None:
        super().__init__(scan)
        self._plan, self._job, self._reader, self._about_to = plan, job, reader, about_to
        self._count = plan.slice_count(job)

    def latestOffset(self, start: Any, limit: Any) -> Any:
        reached = _slice(start)
        if reached < self._count:
            if self._about_to.read is not None:
                self._about_to.read(reached)
            return self._offset({SLICE: reached + 1})
        closed = int(json.loads(start.json()).get(CLOSED, 0)) if start is not None else FORCED
        if self._about_to.close is None or closed >= FORCED:
            return start
        self._about_to.close(closed + 1)
        return self._offset({SLICE: reached, CLOSED: closed + 1})

    def getBatch(self, start: Any, end: Any) -> Any:
        first, last = _slice(start.get() if start.isDefined() else None), _slice(end)
        # One slice at a time; none, when Spark repeats where it was.
        rows = self._taken(first, lambda: self._rows(first)) if first < last else self._scan.stream(NOTHING)
        if last < self._count:
            self._prepare(last, lambda: self._rows(last))
        return rows

    def initialOffset(self) -> Any:
        return self._offset({SLICE: 0})

    def toString(self) -> str:
        return f"{REPLAY}{self._reader} from {self._scan.table}"

    def _rows(self, number: int) -> Any:
        return self._scan.stream(self._plan.slice(self._job, number).source(self._reader))

    def _offset(self, value: dict[str, Any]) -> Any:
        return private.offset_of(self._scan.spark, json.dumps(value))


def replay_stream(
    spark: SparkSession,
    plan: PlanFile,
    job: str,
    source: str,
    archive: ArchiveSource,
    about_to: AboutTo = AboutTo(),  # noqa: B008  # frozen
) -> DataFrame:
    """A stream in the record's shape that reads only the columns of the archive which are asked for.

    They may name fields of the metadata (`__metadata__.offset`). Columns that are not read are null.
    """
    narrow = narrowed(archive.schema, archive.columns)
    scan = slice_scan(spark, plan, job, source, archive, narrow)
    stream = private.stream_of(spark, ReplaySource(scan, plan, job, source, about_to), narrow)
    return widened(stream, narrow, archive.schema)


def slice_scan(
    spark: SparkSession, plan: PlanFile, job: str, source: str, archive: ArchiveSource, schema: StructType
) -> SliceScan:
    """How the slices of one source are read, of these columns."""
    regions, snapshot = tuple(plan.head.regions), plan.head.job(job).source(source).snapshot
    return SliceScan(spark, archive.table, schema, regions, snapshot, archive.fence)


def narrowed(schema: StructType, columns: Sequence[str]) -> StructType:
    """The part of the record's schema that the columns name, in the record's order."""
    from pyspark.sql.types import StructField, StructType

    if not columns:
        return schema
    whole = {name for name in columns if "." not in name}
    inner = {name.partition(".")[2] for name in columns if name.startswith(f"{METADATA}.")}
    kept: list[StructField] = []
    for field in schema.fields:
        if field.name in whole:
            kept.append(field)
        elif field.name == METADATA and inner and isinstance(field.dataType, StructType):
            parts = [part for part in field.dataType.fields if part.name in inner]
            kept.append(StructField(METADATA, StructType(parts), True))
    # A query that uses no column at all still counts rows.
    return StructType(kept or schema.fields[:1])


def _slice(offset: Any) -> int:
    return 0 if offset is None else int(json.loads(offset.json())[SLICE])


def widened(stream: DataFrame, narrow: StructType, schema: StructType, *besides: str) -> DataFrame:
    """The whole record again, with typed nulls for what is not read; Spark drops them where nobody asks. Columns
    `besides` the record's follow as they are."""
    from pyspark.sql import functions as F

    if narrow == schema:
        return stream

    def column(field: Any) -> Any:
        if field.name not in narrow.names:
            return F.lit(None).cast(field.dataType).alias(field.name)
        read = narrow[field.name].dataType
        if read == field.dataType:
            return F.col(field.name)
        parts = [
            F.col(METADATA)[part.name].alias(part.name)
            if part.name in read.names  # type: ignore[attr-defined]
            else F.lit(None).cast(part.dataType).alias(part.name)
            for part in field.dataType.fields
        ]
        return F.when(F.col(METADATA).isNotNull(), F.struct(*parts)).alias(METADATA)

    return stream.select(*(column(field) for field in schema.fields), *besides)
