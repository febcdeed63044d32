"""Kafka positions in the archive: what strict and exact modes need to know of every partition before they can plan.

Reads only a few small columns of the files, once, when the plan is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rekappa.errors import SourceError
from rekappa.iceberg.files import leaf, open_parquet
from rekappa.iceberg.past import rows_at
from rekappa.plan.model import Split
from rekappa.plan.offsets import CutPoint, Position
from rekappa.plan.plan import SourcePlan
from rekappa.plan.recorded import Needed
from rekappa.record import INGESTION, OFFSET, PARTITION, REGION, TOPIC
from rekappa.timeline import Window, instant, micros

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

BUCKET = timedelta(minutes=1)
_COLUMNS = (REGION, TOPIC, PARTITION, OFFSET, INGESTION)
_TIMES = ("timestamp", "timestamp_ntz", "date")
_KEYS = ["region", "topic", "partition", "bucket"]


def cut_points(
    table: Table, splits: Sequence[Split], reads: Window, *, bucket: timedelta = BUCKET
) -> tuple[CutPoint, ...]:
    """For every Kafka partition and every bucket of ingestion time: the offsets that the archive holds.

    `splits` are those of one source. Only rows of `reads` count. Buckets are a grid from the start of `reads`.
    """
    import pyarrow as pa

    ids = {name: table.schema().find_field(name).field_id for name in _COLUMNS}
    io = {key: str(value) for key, value in table.io.properties.items()}
    paths = {split.path: split.source for split in splits}
    if not paths:
        return ()
    with ThreadPoolExecutor(4) as pool:
        parts = pool.map(lambda path: _grouped(path, ids, io, reads, bucket), paths)
    grouped = pa.concat_tables(parts).group_by(_KEYS)
    merged = grouped.aggregate([("first", "min"), ("last", "max"), ("rows", "sum")])
    return tuple(_points(next(iter(paths.values())), merged, reads, bucket))


def offsets_of_times(
    spark: SparkSession, source: SourcePlan, columns: Sequence[str], stretch: Window, regions: Sequence[str]
) -> dict[Position, Needed]:
    """For every Kafka partition: its first and its last event with any of these times in the stretch.

    Whenever it was ingested: files are left out by the bounds of the columns themselves.
    """
    from pyspark.sql import functions as F

    rows = rows_at(spark, source.table, source.snapshot)
    # What a time is made of may be no time itself (text, a number): then ingestion time says where the stretch is.
    kinds = {column: rows.select(column).schema[0].dataType.typeName() for column in columns}
    inside = F.lit(False)
    for column in {name if kind in _TIMES else INGESTION for name, kind in kinds.items()}:
        moment = F.col(column)
        inside = inside | ((moment >= F.lit(stretch.start)) & (moment < F.lit(stretch.end)))
    rows = rows.where(inside)
    if regions:
        rows = rows.where(F.col(REGION).isin(*regions))
    places = [F.col(name).alias(name.rpartition(".")[2]) for name in (REGION, TOPIC, PARTITION)]
    found = rows.groupBy(*places).agg(F.min(OFFSET).alias("first"), F.max(OFFSET).alias("last"))
    return {
        Position(source.name, row["region"] or "", row["topic"] or "", row["partition"]): Needed(
            row["first"], row["last"]
        )
        for row in found.collect()
    }


def _points(source: str, merged: Any, reads: Window, bucket: timedelta) -> Iterator[CutPoint]:
    for row in merged.sort_by([(key, "ascending") for key in _KEYS]).to_pylist():
        start = instant(row["bucket"])
        yield CutPoint(
            Position(source, row["region"] or "", row["topic"] or "", row["partition"]),
            Window(start, min(start + bucket, reads.end)),
            row["first_min"],
            row["last_max"],
            row["rows_sum"],
        )


def _grouped(path: str, ids: Mapping[str, int], io: Mapping[str, str], reads: Window, bucket: timedelta) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    start, end, size = micros(reads.start), micros(reads.end), bucket // timedelta(microseconds=1)
    parts = []
    try:
        with open_parquet(path, io) as file:
            columns = {name: _path(file.metadata, name, number) for name, number in ids.items()}
            for batch in file.iter_batches(262_144, columns=list(columns.values()), use_threads=False):
                found = pa.table({name.rpartition(".")[2]: _leaf(batch, path) for name, path in columns.items()})
                times = found["kafka_ingestion_ts"].cast(pa.int64())
                inside = pc.and_(pc.greater_equal(times, start), pc.less(times, end))
                buckets = pc.add(pc.multiply(pc.divide(pc.subtract(times, start), size), size), start)
                found = found.append_column("bucket", buckets).filter(inside)
                made = found.group_by(_KEYS).aggregate([("offset", "min"), ("offset", "max"), ("offset", "count")])
                parts.append(made.rename_columns({"offset_min": "first", "offset_max": "last", "offset_count": "rows"}))
    except (OSError, ValueError) as error:
        raise SourceError(
            f"Cannot read the Kafka positions in {path}: {str(error).splitlines()[0]}",
            hint="The table's metadata names this file. Was it removed or damaged outside Iceberg?",
        ) from error
    return pa.concat_tables(parts) if parts else _nothing()


def _path(metadata: Any, name: str, field_id: int) -> str:
    at = leaf(metadata, name, field_id)
    if at is None:
        raise ValueError(f"it has no column {name}")
    return str(metadata.schema.column(at).path)


def _leaf(batch: Any, path: str) -> Any:
    """A column inside a struct."""
    import pyarrow.compute as pc

    outer, *inner = path.split(".")
    return pc.struct_field(batch.column(outer), inner)


def _nothing() -> Any:
    import pyarrow as pa

    kinds = {"region": pa.string(), "topic": pa.string(), "partition": pa.int32(), "bucket": pa.int64()}
    counts = {name: pa.int64() for name in ("first", "last", "rows")}
    return pa.schema({**kinds, **counts}).empty_table()
