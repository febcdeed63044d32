"""Reading pieces of data files as Arrow batches in the record's shape.

Runs inside Spark's Python workers, which must be up within seconds: only the standard library is imported at the
top, and PyArrow when there is something to read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any

from rekappa.errors import SourceError
from rekappa.plan.encode import micros
from rekappa.plan.model import OffsetRange
from rekappa.record import INGESTION, METADATA, OFFSET, PARTITION
from rekappa.replay.files import leaf_positions, open_parquet
from rekappa.replay.projection import Fit, fit

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 65_536
_ORDER = ["region", "topic", "partition", "offset"]


@dataclass(frozen=True, slots=True)
class Piece:
    """What a task reads of one file.

    `row_groups` None means all. `cut` is a half-open stretch of ingestion time in microseconds. `regions`, if any,
    are the only ones to keep. `deleted` holds the positions of deleted rows as little-endian 64-bit numbers.
    """

    path: str
    row_groups: tuple[int, ...] | None = None
    cut: tuple[int, int] | None = None
    regions: tuple[str, ...] = ()
    deleted: bytes = b""


@dataclass(frozen=True, slots=True)
class Reading:
    """What is the same for all pieces of a source: the Arrow schema to answer, field ids, file system properties."""

    schema: pa.Schema
    ids: Mapping[str, int]
    io: Mapping[str, str]


def read(
    reading: Reading, pieces: Sequence[Piece], offsets: Sequence[OffsetRange], slice_number: int
) -> Iterator[pa.RecordBatch]:
    """The rows of the pieces; with `offsets`, only those, in the order of each Kafka partition.

    An unreadable file raises `SourceError` with the slice, the file and the cause.
    """
    if offsets:
        yield from _in_kafka_order(reading, pieces, offsets, slice_number)
        return
    for piece in pieces:
        for batch, _ in _rows(reading, piece, (), slice_number):
            yield batch


def _in_kafka_order(
    reading: Reading, pieces: Sequence[Piece], offsets: Sequence[OffsetRange], slice_number: int
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.compute as pc

    batches: list[pa.RecordBatch] = []
    keys: list[pa.RecordBatch] = []
    for piece in pieces:
        for batch, key in _rows(reading, piece, offsets, slice_number):
            assert key is not None, "rows that are put in order were read with their keys"
            batches.append(batch)
            # A piece that is cut has the time among its keys, another one has not.
            keys.append(key.select(_ORDER))
    if not batches:
        return
    order = pc.sort_indices(
        pa.Table.from_batches(keys),
        sort_keys=[(name, "ascending") for name in _ORDER],
    )
    yield from pa.Table.from_batches(batches).take(order).combine_chunks().to_batches(BATCH_ROWS)


def _rows(
    reading: Reading, piece: Piece, offsets: Sequence[OffsetRange], slice_number: int
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
    """The piece's rows, and beside them the Kafka position of each (None where nothing depends on it)."""
    try:
        yield from _parquet_rows(reading, piece, offsets)
    except SourceError:
        raise
    except Exception as error:
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SourceError(f"Cannot read slice {slice_number}: file {piece.path}: {cause}") from error


def _parquet_rows(
    reading: Reading, piece: Piece, offsets: Sequence[OffsetRange]
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
    import pyarrow as pa

    with open_parquet(piece.path, reading.io) as file:
        fields = list(file.schema_arrow)
        fits = [fit(target, fields, reading.ids) for target in reading.schema]
        keys = _key_fit(piece, offsets, fields, reading.ids)
        columns = sorted({name for one in (*fits, *([keys] if keys else ())) for name in one.columns()})
        for groups, first in _runs(file, piece, offsets, reading.ids):
            position = first
            for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=columns, use_threads=False):
                made = pa.RecordBatch.from_arrays([one.of(batch) for one in fits], schema=reading.schema)
                key = pa.RecordBatch.from_struct_array(keys.of(batch)) if keys else None
                keep = _mask(key, piece, offsets, range(position, position + batch.num_rows))
                position += batch.num_rows
                if keep is not None:
                    made, key = made.filter(keep), key.filter(keep) if key else None
                if made.num_rows:
                    yield made, key


def _key_fit(piece: Piece, offsets: Sequence[OffsetRange], fields: list[Any], ids: Mapping[str, int]) -> Fit | None:
    """The part of `__metadata__` that decides which rows are kept and in which order; None if nothing does."""
    import pyarrow as pa

    wanted: list[pa.Field] = []
    if piece.cut:
        wanted.append(pa.field("kafka_ingestion_ts", pa.timestamp("us", tz="UTC")))
    if piece.regions or offsets:
        wanted.append(pa.field("region", pa.string()))
    if offsets:
        wanted += [pa.field("topic", pa.string()), pa.field("partition", pa.int32()), pa.field("offset", pa.int64())]
    if not wanted:
        return None
    found = fit(pa.field(METADATA, pa.struct(wanted)), fields, ids)
    if found.path is None:
        raise ValueError(f"it has no column {METADATA}")
    return found


def _mask(key: Any, piece: Piece, offsets: Sequence[OffsetRange], rows: range) -> Any:
    """Which rows of a batch to keep, None for all of them. `rows` are their positions in the file."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    keep = None
    if piece.cut:
        times = key.column("kafka_ingestion_ts").cast(pa.int64()).fill_null(-(2**62)).to_numpy(zero_copy_only=False)
        keep = (times >= piece.cut[0]) & (times < piece.cut[1])
    if piece.regions:
        keep = _and(keep, _numpy(pc.is_in(key.column("region"), pa.array(piece.regions))))
    if offsets:
        keep = _and(keep, _within(key, offsets))
    if piece.deleted:
        gone = np.frombuffer(piece.deleted, "<i8")
        here = gone[np.searchsorted(gone, rows.start) : np.searchsorted(gone, rows.stop)] - rows.start
        alive = np.ones(len(rows), bool)
        alive[here] = False
        keep = _and(keep, alive)
    return None if keep is None or keep.all() else pa.array(keep)


def _within(key: Any, offsets: Sequence[OffsetRange]) -> Any:
    """Which rows lie in one of the offset ranges."""
    import numpy as np
    import pyarrow.compute as pc

    partitions = key.column("partition").fill_null(-1).to_numpy(zero_copy_only=False)
    positions = key.column("offset").fill_null(-1).to_numpy(zero_copy_only=False)
    keep = np.zeros(len(partitions), bool)
    for region, topic in sorted({(one.region, one.topic) for one in offsets}):
        ranges = [one for one in offsets if (one.region, one.topic) == (region, topic)]
        start = np.full(max(one.partition for one in ranges) + 2, 2**62)
        end = np.zeros(len(start), np.int64)
        for one in ranges:
            start[one.partition], end[one.partition] = one.start, one.end
        # Partitions without a range fall on the last, empty entry.
        at = np.where((partitions >= 0) & (partitions < len(start)), partitions, len(start) - 1)
        here = (positions >= start[at]) & (positions < end[at])
        if topic:
            here &= _numpy(pc.equal(key.column("topic"), topic))
        if region:
            here &= _numpy(pc.equal(key.column("region"), region))
        keep |= here
    return keep


def _numpy(mask: Any) -> Any:
    return mask.fill_null(False).to_numpy(zero_copy_only=False)


def _and(left: Any, right: Any) -> Any:
    return right if left is None else left & right


def _runs(
    file: Any, piece: Piece, offsets: Sequence[OffsetRange], ids: Mapping[str, int]
) -> Iterator[tuple[list[int], int]]:
    """Row groups to read together, with the position of their first row in the file."""
    metadata = file.metadata
    chosen = range(metadata.num_row_groups) if piece.row_groups is None else piece.row_groups
    leaves = leaf_positions(metadata) if offsets or piece.cut else {}
    places = {name: leaves.get(ids.get(name, -1)) for name in (INGESTION, PARTITION, OFFSET)}
    starts = [0]
    for number in range(metadata.num_row_groups):
        starts.append(starts[-1] + metadata.row_group(number).num_rows)
    wanted = [number for number in chosen if _may_hold(metadata.row_group(number), places, piece, offsets)]
    if wanted and not piece.deleted:
        yield wanted, starts[wanted[0]]
        return
    for number in wanted:
        yield [number], starts[number]


def _may_hold(group: Any, places: Mapping[str, int | None], piece: Piece, offsets: Sequence[OffsetRange]) -> bool:
    """False only if the row group's statistics rule it out."""
    if piece.cut and (bounds := _bounds(group, places[INGESTION])):
        low, high = (micros(moment if moment.tzinfo else moment.replace(tzinfo=UTC)) for moment in bounds)
        if high < piece.cut[0] or low >= piece.cut[1]:
            return False
    if not offsets:
        return True
    partition, offset = _bounds(group, places[PARTITION]), _bounds(group, places[OFFSET])
    return any(
        (partition is None or partition[0] <= one.partition <= partition[1])
        and (offset is None or (offset[0] < one.end and offset[1] >= one.start))
        for one in offsets
    )


def _bounds(group: Any, at: int | None) -> tuple[Any, Any] | None:
    statistics = None if at is None else group.column(at).statistics
    return (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else None
