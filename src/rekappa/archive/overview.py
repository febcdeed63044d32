"""The archive over time: how many rows each source and region has when, where dead letters lie. No Spark.

Rows are spread evenly over the time that their file covers, as its metadata tells; no data file is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from rekappa.archive.completeness import complete_until
from rekappa.archive.tables import Route
from rekappa.errors import SourceError
from rekappa.home import Home
from rekappa.iceberg.catalog import load_table
from rekappa.iceberg.splits import whole_files
from rekappa.plan.model import Split
from rekappa.record import INGESTION, METADATA
from rekappa.timeline import TICK, Window

if TYPE_CHECKING:
    from rekappa.config.load import Loaded

COLUMNS = 240
MINUTE = timedelta(minutes=1)
MOST_TEXT = 2_000
UNKNOWN_REGION = "unknown"


@dataclass(frozen=True, slots=True)
class Overview:
    """One source. `rows` and `dead` count by equal parts of [start, end), in ingestion time; all empty without data."""

    source: str
    table: str
    files: int = 0
    bytes: int = 0
    start: datetime | None = None
    end: datetime | None = None
    rows: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dead: tuple[int, ...] = ()
    complete_until: Mapping[str, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be decoded, or not wholly: why, where Kafka had it, and the message itself, of which
    `text` is the beginning."""

    source: str
    reason: str
    archived: bool
    region: str | None
    topic: str | None
    partition: int | None
    offset: int | None
    ingested: datetime | None
    size: int
    value: bytes
    text: str


def overview(loaded: Loaded, home: Home, route: Route, stretch: Window | None = None) -> Overview:
    """One source's archive over the stretch, or over all that it holds."""
    try:
        table = load_table(loaded.config, route.table, home)
    except SourceError:
        return Overview(route.source_name, route.table)
    files = [one for one in whole_files(table, route.source_name, stretch) if one.rows]
    known = complete_until(table)
    if not files:
        return Overview(route.source_name, route.table, complete_until=known)
    shown = stretch or _covering(files)
    return Overview(
        route.source_name,
        route.table,
        len(files),
        sum(one.bytes for one in files),
        shown.start,
        shown.end,
        spread(files, shown),
        _counted(_dead_times(loaded, home, route), shown),
        known,
    )


def _covering(files: list[Split]) -> Window:
    """All of the files' time, in whole minutes."""
    low, high = min(one.low for one in files), max(one.high for one in files)
    start = low.replace(second=0, microsecond=0)
    return Window(start, start + -(-(high - start + TICK) // MINUTE) * MINUTE)


def spread(files: Iterable[Split], shown: Window, columns: int = COLUMNS) -> dict[str, tuple[int, ...]]:
    """Rows by region and column; each file's rows evenly over its time, at least one column wide."""
    found: dict[str, list[float]] = {}
    for one in files:
        low = (one.low - shown.start) / shown.length * columns
        high = max((one.high - shown.start) / shown.length * columns, low + 1e-9)
        cells = found.setdefault(one.region or UNKNOWN_REGION, [0.0] * columns)
        for column in range(max(0, int(low)), min(columns - 1, int(high)) + 1):
            share = (min(high, column + 1) - max(low, column)) / (high - low)
            cells[column] += one.rows * max(share, 0.0)
    return {region: _whole(cells) for region, cells in sorted(found.items())}


def _whole(cells: Iterable[float]) -> tuple[int, ...]:
    """Whole counts with the same sum: what one column loses by rounding, a later one gets."""
    sums = [0, *(round(total) for total in accumulate(cells))]
    return tuple(after - before for before, after in pairwise(sums))


def _counted(moments: Iterable[datetime], shown: Window, columns: int = COLUMNS) -> tuple[int, ...]:
    cells = [0] * columns
    for moment in moments:
        if shown.start <= moment < shown.end:
            cells[int((moment - shown.start) / shown.length * columns)] += 1
    return tuple(cells)


def _dead_times(loaded: Loaded, home: Home, route: Route) -> list[datetime]:
    """When the source's dead letters were ingested; nothing else of them is read."""
    rows = _letters(loaded, home, route, INGESTION)
    return [at for row in rows if (at := (row.get(METADATA) or {}).get("kafka_ingestion_ts")) is not None]


def dead_letters(loaded: Loaded, home: Home, route: Route, *, limit: int) -> list[DeadLetter]:
    """Some of the source's dead letters, newest first."""
    found = [_letter(row) for row in _letters(loaded, home, route, "*")]
    return sorted(found, key=lambda one: (one.ingested is not None, one.ingested), reverse=True)[:limit]


def _letters(loaded: Loaded, home: Home, route: Route, *columns: str) -> list[dict[str, Any]]:
    from pyiceberg.expressions import EqualTo

    try:
        table = load_table(loaded.config, route.dead_letters, home)
    except SourceError:
        return []
    wanted: Any = EqualTo("source", route.source_name)  # type: ignore[call-arg, arg-type]
    found: list[dict[str, Any]] = table.scan(row_filter=wanted, selected_fields=columns).to_arrow().to_pylist()
    return found


def _letter(row: Mapping[str, Any]) -> DeadLetter:
    at, value = row.get(METADATA) or {}, row.get("value") or b""
    return DeadLetter(
        row["source"],
        row.get("reason") or "",
        bool(row.get("archived")),
        at.get("region"),
        at.get("topic"),
        at.get("partition"),
        at.get("offset"),
        at.get("kafka_ingestion_ts"),
        len(value),
        value,
        value[:MOST_TEXT].decode("utf-8", "replace"),
    )
