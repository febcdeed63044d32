"""The replay source: a Spark stream that reads one planned slice per micro-batch.

    stream = replay_stream(spark, plan_path, "sessions", "playbacks", table=table, schema=record, resume=0)

Offset {"slice": n} means that the slices below n have been read. Every call of `latestOffset` answers one more, so
all sources of a query advance by one slice per micro-batch, together. Spark does not tell a Python source where it
resumes, so the newest slice in the checkpoint's offset log comes in as an option.

Spark's Python workers import this module: it stays light.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from rekappa.plan.store import PlanFile
from rekappa.record import METADATA
from rekappa.replay.reader import Reading, read
from rekappa.replay.tasks import Task, share_out

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "rekappa_replay"


class SlicePartition(InputPartition):
    """What one task reads, and the slice that it belongs to."""

    def __init__(self, slice_number: int, task: Task) -> None:
        self.slice_number = slice_number
        self.task = task


class ReplaySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ReplayReader(schema, dict(self.options))


class ReplayReader(DataSourceStreamReader):
    """On the driver: hands out slices and shares them out. In the workers: reads."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self.schema = schema
        self.job = options["job"]
        self.source = options["source"]
        self.tasks = int(options["tasks"])
        self.ids: dict[str, int] = json.loads(options["ids"])
        self.io: dict[str, str] = json.loads(options["io"])
        self.metadata = options["metadata"]
        self.plan = PlanFile(Path(options["plan"]))
        self.next = int(options["resume"])

    def initialOffset(self) -> dict[str, int]:
        return {"slice": 0}

    def latestOffset(self) -> dict[str, int]:
        self.next = min(self.next + 1, self.plan.slice_count(self.job))
        return {"slice": self.next}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        parts: list[InputPartition] = []
        for number in range(start["slice"], end["slice"]):
            part = self.plan.slice(self.job, number).sources.get(self.source)
            if part is None:
                continue
            shared = share_out(
                part,
                self.tasks,
                regions=self.plan.head.regions,
                row_groups=lambda path: row_group_sizes(path, json.dumps(self.io)),
                deleted=lambda path: self._deleted[path],
            )
            parts += [SlicePartition(number, task) for task in shared]
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        assert isinstance(partition, SlicePartition)
        reading = Reading(to_arrow_schema(self.schema), self.ids, self.io)
        return read(reading, partition.task.pieces, partition.task.offsets, partition.slice_number)

    @cached_property
    def _deleted(self) -> dict[str, bytes]:
        from rekappa.replay.deletes import deleted_positions

        snapshot = self.plan.head.job(self.job).source(self.source).snapshot
        return deleted_positions(self.metadata, self.io, snapshot)


@lru_cache(maxsize=4096)
def row_group_sizes(path: str, io: str) -> tuple[int, ...]:
    """Bytes of each row group of a file; empty for one that can't be opened, which reading will report."""
    from rekappa.replay.files import open_parquet

    try:
        with open_parquet(path, json.loads(io)) as file:
            metadata = file.metadata
            return tuple(metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups))
    except (OSError, ValueError):
        return ()


def replay_stream(
    spark: SparkSession,
    plan: Path,
    job: str,
    source: str,
    *,
    table: Table,
    schema: StructType,
    columns: Sequence[str] = (),
    resume: int = 0,
    tasks: int | None = None,
) -> DataFrame:
    """A stream in the record's shape, `schema`, that reads only `columns` of the archive (all, if none are named).

    `columns` may name fields of the metadata (`__metadata__.offset`). Columns that are not read are null. `resume` is
    the newest slice in the checkpoint's offset log, 0 for a new one.
    """
    from rekappa.replay.projection import field_ids

    narrow = narrowed(schema, columns)
    spark.dataSource.register(ReplaySource)
    options = {
        "plan": str(plan),
        "job": job,
        "source": source,
        "tasks": str(tasks or spark.sparkContext.defaultParallelism),
        "ids": json.dumps(field_ids(table.schema())),
        "io": json.dumps({key: str(value) for key, value in table.io.properties.items()}),
        "metadata": table.metadata_location,
        "resume": str(resume),
    }
    stream = spark.readStream.format(FORMAT).schema(narrow).options(**options).load()
    return stream if narrow == schema else _widened(stream, narrow, schema)


def narrowed(schema: StructType, columns: Sequence[str]) -> StructType:
    """The part of the record's schema that the columns name, in the record's order."""
    from pyspark.sql.types import StructField

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


def _widened(stream: DataFrame, narrow: StructType, schema: StructType) -> DataFrame:
    """The whole record again, with typed nulls for what is not read; Spark drops them where nobody asks."""
    from pyspark.sql import functions as F

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

    return stream.select(*(column(field) for field in schema.fields))
