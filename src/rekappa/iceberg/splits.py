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
from rekappa.iceberg.files import leaf, open_parquet
from rekappa.plan.model import OffsetBounds, RowGroup, Split
from rekappa.record import INGESTION, OFFSET, PARTITION, REGION
from rekappa.timeline import EPOCH, Window, instant

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table

UNKNOWN = EPOCH - timedelta(days=1)
_TRUNCATED = 16  # Iceberg shortens text bounds to this many characters


@dataclass(frozen=True, slots=True)
class SplitScan:
    """What a scan of the metadata found. `snapshot` is None for a table that never had a commit."""

    splits: tuple[Split, ...]
    snapshot: int | None
    files: int
    rows: int
    bytes: int
    skipped_files: int
    skipped_bytes: int
    wide_files: int = 0
    newest: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Columns:
    """Field ids of the record's columns that planning looks at."""

    ingestion: int
    region: int | None
    partition: int | None
    offset: int | None


def table_splits(
    table: Table, source: str, reads: Window, regions: Sequence[str] = (), *, max_misalignment: timedelta
) -> SplitScan:
    """Every piece of the table's current files that can hold events of `reads` and of these regions (all if none).

    One split per file. A file that is wider than the bound, or reaches over an edge of `reads`, comes with the
    bounds of its row groups, so that the planner can cut it; what lies outside `reads` is the planner's to cut off.
    """
    columns = _columns(table)
    snapshot = table.current_snapshot()
    if snapshot is None:
        return SplitScan((), None, 0, 0, 0, 0, 0)
    io = dict(table.io.properties)
    found = [
        (task, whole)
        for task, whole in _files(table, source, columns, reads, regions, io)
        if reads.overlaps(whole.low, whole.high) and (not regions or whole.region in ("", *regions))
    ]
    coarse = {
        position
        for position, (_, whole) in enumerate(found)
        if whole.high - whole.low > max_misalignment or whole.low < reads.start or whole.high >= reads.end
    }
    with ThreadPoolExecutor(8) as pool:
        groups = pool.map(lambda at: _row_groups(found[at][1], columns, io), sorted(coarse))
        known = dict(zip(sorted(coarse), groups, strict=True))
    splits = tuple(replace(whole, groups=known[at]) if at in known else whole for at, (_, whole) in enumerate(found))
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    size = sum(whole.bytes for _, whole in found)
    return SplitScan(
        splits=splits,
        snapshot=snapshot.snapshot_id,
        files=len(found),
        rows=sum(split.rows for split in splits),
        bytes=sum(split.bytes for split in splits),
        skipped_files=max(0, int(summary.get("total-data-files", len(found))) - len(found)),
        skipped_bytes=max(0, int(summary.get("total-files-size", size)) - size),
        wide_files=sum(whole.high - whole.low > max_misalignment for _, whole in found),
        newest=max((whole.high for _, whole in found), default=None),
    )


def whole_files(table: Table, source: str, stretch: Window | None = None) -> list[Split]:
    """Every file of the table's current state that can hold events of a stretch, or of any time; none is opened that
    has bounds in the metadata."""
    if table.current_snapshot() is None:
        return []
    reads = stretch or Window(EPOCH, datetime(9999, 1, 1, tzinfo=UTC))
    return [whole for _, whole in _files(table, source, _columns(table), reads, (), dict(table.io.properties))]


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
    table: Table, source: str, columns: _Columns, reads: Window, regions: Sequence[str], io: dict[str, str]
) -> Iterator[tuple[FileScanTask, Split]]:
    """Each file that the metadata can't rule out, as one split."""
    for task in _of_stretch(table, reads, regions):
        file = task.file
        if file.file_format.value.upper() != "PARQUET":
            raise SourceError(
                f"Cannot replay file {file.file_path}: only Parquet can be read, not {file.file_format.value}",
                hint="Rewrite the table's files as Parquet.",
            )
        whole = Split(
            source=source,
            path=file.file_path,
            rows=file.record_count,
            bytes=file.file_size_in_bytes,
            low=UNKNOWN,
            high=UNKNOWN,
            region=_region(table, file, columns),
            deletes=bool(task.delete_files),
            positions=_positions(file, columns),
        )
        low, high = file.lower_bounds.get(columns.ingestion), file.upper_bounds.get(columns.ingestion)
        if low is not None and high is not None:
            yield task, replace(whole, low=_instant(low), high=_instant(high))
        elif file.record_count:
            # A file without bounds was written with metrics turned off: its footer is the next best thing.
            groups = _row_groups(whole, columns, io)
            yield task, replace(whole, low=min(g.low for g in groups), high=max(g.high for g in groups))


def _of_stretch(table: Table, reads: Window, regions: Sequence[str]) -> list[FileScanTask]:
    import pyiceberg.expressions

    # The expressions are pydantic models whose positional arguments no type checker sees.
    ex: Any = pyiceberg.expressions
    wanted: Any = ex.And(
        ex.GreaterThanOrEqual(INGESTION, reads.start.isoformat()), ex.LessThan(INGESTION, reads.end.isoformat())
    )
    if regions:
        wanted = ex.And(wanted, ex.In(REGION, set(regions)))
    return planned_files(table, wanted)


def planned_files(table: Table, wanted: Any) -> list[FileScanTask]:
    """Iceberg's own answer to an expression: files with their row-level deletes. Refuses equality deletes."""
    try:
        return list(table.scan(row_filter=wanted).plan_files())
    except (ValueError, NotImplementedError) as error:
        if "equality deletes" not in str(error):
            raise
        raise SourceError(
            f"Cannot replay table {'.'.join(table.name())}: it has equality deletes, which can't be applied here",
            hint="Apply them first: Iceberg's rewrite_data_files with the option delete-file-threshold=1.",
        ) from error


def _region(table: Table, file: Any, columns: _Columns) -> str:
    """The one region that the file holds, "" where the metadata does not tell."""
    if columns.region is None:
        return ""
    for position, field in enumerate(table.specs()[file.spec_id].fields):
        if field.source_id == columns.region and str(field.transform) == "identity":
            return str(file.partition[position] or "")
    low, high = file.lower_bounds.get(columns.region), file.upper_bounds.get(columns.region)
    if low is not None and low == high and len(low.decode()) < _TRUNCATED:
        return str(low.decode())
    return ""


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


def _positions(file: Any, columns: _Columns) -> OffsetBounds | None:
    bounds = [
        side.get(column)
        for column in (columns.partition, columns.offset)
        for side in (file.lower_bounds, file.upper_bounds)
    ]
    if any(bound is None for bound in bounds):
        return None
    return OffsetBounds(*(int.from_bytes(bound, "little", signed=True) for bound in bounds))


def _instant(bound: bytes) -> datetime:
    return instant(int.from_bytes(bound, "little", signed=True))


def _aware(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
