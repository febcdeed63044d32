"""How the archive is doing: lag, completeness, files, dead letters. From metadata alone; no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from rekappa.archive.completeness import clusters, complete_until
from rekappa.archive.offsets import batch_ends
from rekappa.archive.tables import Route
from rekappa.errors import RunError, SourceError
from rekappa.home import Home
from rekappa.iceberg.catalog import load_table
from rekappa.iceberg.listing import all_files
from rekappa.spark.offsetlog import last_committed

if TYPE_CHECKING:
    from rekappa.config.load import Loaded

SMALL_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """One source's archive. `lag` is the number of messages that Kafka has and the archive has not, None where
    Kafka or the router's checkpoint can't be seen from here."""

    source: str
    topics: tuple[str, ...]
    table: str
    lag: int | None
    rows: int = 0
    files: int = 0
    small_files: int = 0
    bytes: int = 0
    newest_commit: datetime | None = None
    complete_until: Mapping[str, datetime] = field(default_factory=dict)
    dead_letters: int = 0


def status(loaded: Loaded, home: Home, route: Route) -> SourceStatus:
    """What the table's metadata, the checkpoint and Kafka say of one source."""
    lag = _lag(loaded, home, route)
    try:
        table = load_table(loaded.config, route.table, home)
    except SourceError:
        return SourceStatus(route.source_name, route.topics, route.table, lag)
    sizes = [(file.rows, file.size) for file in all_files(table)]
    snapshot = table.current_snapshot()
    small = loaded.config.archive.target_file_size_mb * 1024 * 1024 * SMALL_SHARE
    return SourceStatus(
        route.source_name,
        route.topics,
        route.table,
        lag,
        rows=sum(rows for rows, _ in sizes),
        files=len(sizes),
        small_files=sum(size < small for _, size in sizes),
        bytes=sum(size for _, size in sizes),
        newest_commit=datetime.fromtimestamp(snapshot.timestamp_ms / 1000).astimezone() if snapshot else None,
        complete_until=complete_until(table),
        dead_letters=_dead(loaded, home, route),
    )


def _lag(loaded: Loaded, home: Home, route: Route) -> int | None:
    folder = route.checkpoint(home)
    try:
        found = clusters(loaded, home, route)
        bounds = {part: both for cluster in found for part, both in cluster.bounds().items()}
    except SourceError:
        return None
    try:
        last = last_committed(folder)
        at = batch_ends(folder, last, [cluster.region for cluster in found]) if last is not None else {}
    except RunError:
        return None
    return sum(max(0, high - at.get(part, low)) for part, (low, high) in bounds.items())


def _dead(loaded: Loaded, home: Home, route: Route) -> int:
    try:
        table = load_table(loaded.config, route.dead_letters, home)
    except SourceError:
        return 0
    return int(table.scan(row_filter=f"source = '{route.source_name}'").count())
