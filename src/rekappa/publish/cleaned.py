"""What `rekappa clean` finds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Cleaned:
    """One thing that a run left, and what becomes of it: `kept` says why it stays, None that it goes.

    A staging table; or, without a sink, the run's checkpoint folder with its logs and, as `rows`, its batch records;
    micro-batches of a live run; or, without a run, code that none needs any more.
    """

    name: str
    run: str
    sink: str | None
    rows: int
    bytes: int
    written: datetime
    kept: str | None
    undo_lost: bool = False
