"""From Iceberg's metadata to splits: which files hold the events of a stretch of time, and their bounds.

Only the table's current state counts, so expired snapshots and compaction do not matter. Columns are known by
Iceberg's field ids, so neither do renames. Footers of data files are read only where the metadata is too coarse:
for files wider than the bound, or at an edge of what is to be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rekappa.errors import SourceError
from rekappa.iceberg.decode import AskedColumn, Between, FileEntry
from rekappa.iceberg.files import leaf, open_parquet
from rekappa.iceberg.listing import listed_files
from rekappa.iceberg.times import ColumnTimes
from rekappa.plan.model import OffsetBounds, RowGroup, Split
from rekappa.plan.outside import Piece
from rekappa.record import INGESTION, OFFSET, PARTITION, REGION
from rekappa.timeline import EPOCH, Window, instant, micros

if TYPE_CHECKING:
    from pyiceberg.table import Table

UNKNOWN = EPOCH - timedelta(days=1)
_TRUNCATED = 16  # Iceberg shortens text bounds to this many characters


@dataclass(frozen=True, slots=True)
class SplitScan:
    """What a scan of the metadata found. `snapshot` is None for a table that never had a commit. `happened` has the
    files of each stretch of event time that was asked for beside."""

    splits: tuple[Split, ...]
    snapshot: int | None
    files: int
    rows: int
    bytes: int
    skipped_files: int
    skipped_bytes: int
    wide_files: int = 0
    newest: datetime | None = None
    happened: tuple[tuple[Piece, ...], ...] = ()


Beside = Sequence[tuple[ColumnTimes, Window]]
"""Stretches of event time whose files are asked for with the splits, wherever they lie."""


@dataclass(frozen=True, slots=True)
class _Columns:
    """Field ids of the record's columns that planning looks at."""

    ingestion: int
    region: int | None
    partition: int | None
    offset: int | None

    @property
    def asked(self) -> tuple[AskedColumn, ...]:
        """In the order in which bounds are read below. No column has the id -1, so that one which is not there has no
        bounds."""
        ids = [-1 if one is None else one for one in (self.region, self.partition, self.offset)]
        return (AskedColumn(self.ingestion), AskedColumn(ids[0], text=True), AskedColumn(ids[1]), AskedColumn(ids[2]))


def table_splits(
    table: Table,
    source: str,
    reads: Window,
    regions: Sequence[str] = (),
    *,
    max_misalignment: timedelta,
    beside: Beside = (),
) -> SplitScan:
    """Every piece of the table's current files that can hold events of `reads` and of these regions (all if none).

    One split per file. A file that is wider than the bound, or reaches over an edge of `reads`, comes with the
    bounds of its row groups, so that the planner can cut it; what lies outside `reads` is the planner's to cut off.
    What is asked for `beside` is found in the same look at the manifests.
    """
    columns = _columns(table)
    snapshot = table.current_snapshot()
    if snapshot is None:
        return SplitScan((), None, 0, 0, 0, 0, 0, happened=((),) * len(beside))
    io = dict(table.io.properties)
    happened: tuple[list[Piece], ...] = tuple([] for _ in beside)
    found = [
        whole
        for whole in _files(table, source, columns, reads, regions, io, beside, happened)
        if reads.overlaps(whole.low, whole.high) and (not regions or whole.region in ("", *regions))
    ]
    coarse = [
        position
        for position, whole in enumerate(found)
        if whole.high - whole.low > max_misalignment or whole.low < reads.start or whole.high >= reads.end
    ]
    with ThreadPoolExecutor(8) as pool:
        groups = pool.map(lambda at: _row_groups(found[at], columns, io), coarse)
        known = dict(zip(coarse, groups, strict=True))
    splits = tuple(replace(whole, groups=known[at]) if at in known else whole for at, whole in enumerate(found))
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    size = sum(whole.bytes for whole in found)
    return SplitScan(
        splits=splits,
        snapshot=snapshot.snapshot_id,
        files=len(found),
        rows=sum(split.rows for split in splits),
        bytes=sum(split.bytes for split in splits),
        skipped_files=max(0, int(summary.get("total-data-files", len(found))) - len(found)),
        skipped_bytes=max(0, int(summary.get("total-files-size", size)) - size),
        wide_files=sum(whole.high - whole.low > max_misalignment for whole in found),
        newest=max((whole.high for whole in found), default=None),
        happened=tuple(map(tuple, happened)),
    )


def whole_files(table: Table, source: str, stretch: Window | None = None) -> list[Split]:
    """Every file of the table's current state that can hold events of a stretch, or of any time; none is opened that
    has bounds in the metadata."""
    if table.current_snapshot() is None:
        return []
    reads = stretch or Window(EPOCH, datetime(9999, 1, 1, tzinfo=UTC))
    return list(_files(table, source, _columns(table), reads, (), dict(table.io.properties)))


def _columns(table: Table) -> _Columns:
    schema = table.schema()
    ids = {name: _field_id(schema, name) for name in (INGESTION, REGION, PARTITION, OFFSET)}
    ingestion = ids[INGESTION]
    if ingestion is None:
        raise SourceError(
            f"Cannot replay table {'.'.join(table.name())}: it has no column {INGESTION}",
            hint="Archive tables are written by rekappa archive run; other tables need the same __metadata__ column.",
        )
    return _Columns(ingestion, ids[REGION], ids[PARTITION], ids[OFFSET])


def _field_id(schema: Any, name: str) -> int | None:
    try:
        return int(schema.find_field(name).field_id)
    except ValueError:
        return None


def _files(
    table: Table,
    source: str,
    columns: _Columns,
    reads: Window,
    regions: Sequence[str],
    io: dict[str, str],
    beside: Beside = (),
    happened: Sequence[list[Piece]] = (),
) -> Iterator[Split]:
    """Each file that the metadata can't rule out, as one split; those of the stretches `beside` go to `happened`."""
    asked, between = columns.asked, [Between(0, micros(reads.start), micros(reads.end) - 1)]
    others = []
    for (times, stretch), found in zip(beside, happened, strict=True):
        if times.there:
            others.append((1 << len(between), len(asked), times, found))
            between.append(times.between(stretch, len(asked)))
            asked = (*asked, times.asked)
    named = {number: _region_field(spec, columns) for number, spec in table.specs().items()}
    for entry in listed_files(table, _asked_for(reads, regions, beside), asked, *between):
        for bit, at, times, found in others:
            if entry.fits & bit:
                found.append(times.piece(entry, at))
        if not entry.fits & 1:
            continue
        if entry.format.upper() != "PARQUET":
            raise SourceError(
                f"Cannot replay file {entry.path}: only Parquet can be read, not {entry.format}",
                hint="Rewrite the table's files as Parquet.",
            )
        place, low, high = named[entry.spec], entry.lower[0], entry.upper[0]
        known = low is not None and high is not None
        whole = Split(
            source,
            entry.path,
            entry.rows,
            entry.size,
            instant(low) if known else UNKNOWN,
            instant(high) if known else UNKNOWN,
            str(entry.partition[place] or "") if place is not None else _region(entry),
            deletes=entry.deletes,
            positions=_positions(entry),
        )
        if known:
            yield whole
        elif entry.rows:
            # A file without bounds was written with metrics turned off: its footer is the next best thing.
            groups = _row_groups(whole, columns, io)
            yield replace(whole, low=min(g.low for g in groups), high=max(g.high for g in groups))


def _asked_for(reads: Window, regions: Sequence[str], beside: Beside) -> Any:
    import pyiceberg.expressions

    # The expressions are pydantic models whose positional arguments no type checker sees.
    ex: Any = pyiceberg.expressions
    wanted: Any = ex.And(
        ex.GreaterThanOrEqual(INGESTION, reads.start.isoformat()), ex.LessThan(INGESTION, reads.end.isoformat())
    )
    for times, stretch in beside:
        if times.there:
            wanted = ex.Or(wanted, times.expression(stretch))
    return ex.And(wanted, ex.In(REGION, set(regions))) if regions else wanted


def _region_field(spec: Any, columns: _Columns) -> int | None:
    """The place of the region among the partition's values, None where it is not one of them."""
    for position, field in enumerate(spec.fields):
        if field.source_id == columns.region and str(field.transform) == "identity":
            return position
    return None


def _region(entry: FileEntry) -> str:
    """The one region that the file holds, "" where its bounds do not tell."""
    low, high = entry.lower[1], entry.upper[1]
    return str(low) if low is not None and low == high and len(low) < _TRUNCATED else ""


def _row_groups(whole: Split, columns: _Columns, io: dict[str, str]) -> tuple[RowGroup, ...]:
    """The file's row groups with their bounds; the file's own bounds where its footer has none."""
    try:
        metadata = open_parquet(whole.path, io).metadata
        at = leaf(metadata, INGESTION, columns.ingestion)
    except (OSError, ValueError) as error:
        raise SourceError(
            f"Cannot read the footer of {whole.path}: {_short(error)}",
            hint="The table's metadata names this file. Was it removed or damaged outside Iceberg?",
        ) from error
    groups = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        statistics = group.column(at).statistics if at is not None else None
        if statistics is not None and statistics.has_min_max:
            low, high = _aware(statistics.min), _aware(statistics.max)
        elif whole.low is not UNKNOWN:
            low, high = whole.low, whole.high
        else:
            raise SourceError(
                f"Cannot replay file {whole.path}: neither the table nor the file records the bounds of {INGESTION}",
                hint="Compact the table with column metrics turned on.",
            )
        groups.append(RowGroup(group.num_rows, low, high))
    return tuple(groups)


def _positions(entry: FileEntry) -> OffsetBounds | None:
    (low_partition, low_offset), (high_partition, high_offset) = entry.lower[2:4], entry.upper[2:4]
    if low_partition is None or high_partition is None or low_offset is None or high_offset is None:
        return None
    return OffsetBounds(low_partition, high_partition, low_offset, high_offset)


def _aware(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
