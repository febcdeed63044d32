"""Events later than the drain: what the archive's metadata shows of them, without reading any."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rekappa.plan.words import count
from rekappa.record import INGESTION, REGION
from rekappa.timeline import Window, format_duration, format_instant, instant

if TYPE_CHECKING:
    from pyiceberg.table import Table

_MINUTE = timedelta(minutes=1)


def later_events(
    table: Table, source: str, event_time: str, window: Window, reads: Window, regions: Sequence[str]
) -> list[str]:
    """A warning if files ingested after `reads` may hold events that happened in the window.

    Production's watermark follows its micro-batches, so it may have taken in events a little later than its delay.
    """
    import pyiceberg.expressions

    ex: Any = pyiceberg.expressions
    if not _is_instant(table, event_time):
        return []
    wanted = ex.And(
        ex.GreaterThanOrEqual(INGESTION, reads.end.isoformat()),
        ex.LessThan(event_time, window.end.isoformat()),
        ex.GreaterThanOrEqual(event_time, window.start.isoformat()),
    )
    if regions:
        wanted = ex.And(wanted, ex.In(REGION, set(regions)))
    files = [task.file for task in table.scan(row_filter=wanted).plan_files()]
    if not files:
        return []
    newest = max((found for file in files if (found := _newest(table, file)) is not None), default=reads.end)
    needed = -(-(newest + timedelta(microseconds=1) - window.end) // _MINUTE) * _MINUTE
    return [
        f"{count(len(files))} files of source {source!r} that were ingested after the drain, up to "
        f"{format_instant(newest)}, may hold late events of the window: --drain '{format_duration(needed)}' reads them."
    ]


def _is_instant(table: Table, column: str) -> bool:
    try:
        return str(table.schema().find_field(column).field_type) == "timestamptz"
    except ValueError:
        return False


def _newest(table: Table, file: Any) -> datetime | None:
    bound = file.upper_bounds.get(table.schema().find_field(INGESTION).field_id)
    return instant(int.from_bytes(bound, "little", signed=True)) if bound else None
