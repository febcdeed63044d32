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
class OffsetBounds:
    """What a file's metadata says of the Kafka positions in it: all four bounds are inclusive."""

    low_partition: int
    high_partition: int
    low_offset: int
    high_offset: int

    def may_hold(self, wanted: OffsetRange) -> bool:
        """False only if the file can't have a row of `wanted`."""
        return (
            self.low_partition <= wanted.partition <= self.high_partition
            and self.low_offset < wanted.end
            and self.high_offset >= wanted.start
        )


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group of a data file, with the closed bounds of its ingestion times."""

    rows: int
    low: datetime
    high: datetime


@dataclass(frozen=True, slots=True)
class Split:
    """A piece of one data file.

    `low` and `high` bound the ingestion time of its rows, both inclusive. `cut`, when set, is the half-open
    stretch of ingestion time that belongs to this split: the file's other rows belong to other splits. `deletes` says
    that some of the file's rows have been deleted since it was written.

    `groups` and `positions` are what the planner may be told of the file: its row groups' bounds (worth
    reading for wide files only) and its bounds of Kafka partition and offset. Planned splits carry neither.
    """

    source: str
    path: str
    rows: int
    bytes: int
    low: datetime
    high: datetime
    region: str = ""
    cut: Window | None = None
    deletes: bool = False
    groups: tuple[RowGroup, ...] = ()
    positions: OffsetBounds | None = None


def reader(source: str, number: int) -> str:
    """The name of a source's nth reader, from 0. A query that joins a source with itself reads it twice."""
    return source if number == 0 else f"{source}#{number + 1}"


def source_of(name: str) -> str:
    """The source that a reader reads."""
    return name.partition("#")[0]


@dataclass(frozen=True, slots=True)
class SourceSlice:
    """What one micro-batch reads of one source: these splits, and of them only these offsets, if any are named."""

    splits: tuple[Split, ...] = ()
    offsets: tuple[OffsetRange, ...] = ()

    @property
    def rows(self) -> int:
        """The rows to expect. A file that is read for a few of its offsets does not count whole."""
        held = sum(split.rows for split in self.splits)
        return min(held, sum(wanted.end - wanted.start for wanted in self.offsets)) if self.offsets else held

    @property
    def bytes(self) -> int:
        """The bytes to expect, in proportion to the rows."""
        size = sum(split.bytes for split in self.splits)
        held = sum(split.rows for split in self.splits)
        return size * self.rows // held if self.offsets and held else size


NOTHING = SourceSlice()


@dataclass(frozen=True, slots=True)
class Slice:
    """What one micro-batch reads, by reader: a source's first reader has the source's name.

    `reach` is the stretch of ingestion time that its rows span. `watermark` is the one that production's micro-batch
    ran with, where the slice is one of those; None lets it follow the data.
    """

    number: int
    sources: Mapping[str, SourceSlice]
    reach: Window | None = None
    watermark: datetime | None = None

    def source(self, name: str) -> SourceSlice:
        """What it reads through one reader: nothing, if that is quiet in this slice."""
        return self.sources.get(name, NOTHING)

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.sources.values())

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.sources.values())
