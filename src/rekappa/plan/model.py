"""The values that planning is about: splits in, slices out, all frozen.

A *split* is one readable piece of a data file with its bounds in ingestion time. A *slice* is what one
micro-batch reads, for all sources together. Bounds of files are closed [low, high], as Iceberg records
them; everything that we cut ourselves is half-open [start, end).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from rekappa.timeline import Window


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start, end) of one Kafka partition."""

    region: str
    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Split:
    """A piece of one data file.

    `low` and `high` bound the ingestion time of its rows, both inclusive. `cut`, when set, is the half-open
    stretch of ingestion time that belongs to this split: the file's other rows belong to other splits.
    `row_groups`, when set, are the only row groups that can hold its rows.
    """

    source: str
    path: str
    rows: int
    bytes: int
    low: datetime
    high: datetime
    region: str = ""
    cut: Window | None = None
    row_groups: tuple[int, ...] | None = None
    deletes: bool = False


@dataclass(frozen=True, slots=True)
class SourceSlice:
    """What one micro-batch reads of one source: these splits, and of them only these offsets, if any are named."""

    splits: tuple[Split, ...] = ()
    offsets: tuple[OffsetRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Slice:
    """What one micro-batch reads. `reach` is the stretch of ingestion time that its rows span."""

    number: int
    sources: Mapping[str, SourceSlice]
    reach: Window | None = None

    @property
    def rows(self) -> int:
        return sum(split.rows for part in self.sources.values() for split in part.splits)

    @property
    def bytes(self) -> int:
        return sum(split.bytes for part in self.sources.values() for split in part.splits)
