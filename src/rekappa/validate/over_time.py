"""Differences by when their rows happened: the window in stretches of one width, each with its counts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from math import gcd
from typing import Any

from rekappa.timeline import TICK, Window, micros

MOST = 60
"""No chart has more stretches than this: a bar must be wide enough to point at."""
FEWEST = 3
"""So many stretches with rows tell a step; fewer may be where they are by chance."""
_WIDTHS = (
    *(timedelta(seconds=count) for count in (1, 5, 15, 30)),
    *(timedelta(minutes=count) for count in (1, 2, 5, 10, 15, 30)),
    *(timedelta(hours=count) for count in (1, 2, 3, 6, 12)),
    *(timedelta(days=count) for count in (1, 2, 7, 14, 30, 90, 365)),
)
Counts = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Stretches:
    """How a window is divided: `count` stretches of `width` from `start` on, the last one cut where the window ends."""

    start: datetime
    width: timedelta
    count: int

    @classmethod
    def of(cls, window: Window) -> Stretches:
        fitting = (width for width in _WIDTHS if -(-window.length // width) <= MOST)
        width = next(fitting, window.length / MOST + TICK)
        return cls(window.start, width, -(-window.length // width))

    @property
    def micros(self) -> tuple[int, int]:
        """Start and width in microseconds."""
        return micros(self.start), self.width // TICK

    def spread(self, counted: Iterable[tuple[int | None, str, int]]) -> dict[str, tuple[int, ...]]:
        """Counts by name, one for each stretch, from triples of stretch, name and count. What has no stretch is left
        out; what lies beside the window belongs to its first or last one."""
        found: dict[str, list[int]] = {}
        for cell, name, count in counted:
            if cell is not None:
                cells = found.setdefault(name, [0] * self.count)
                cells[min(max(cell, 0), self.count - 1)] += count
        return {name: tuple(cells) for name, cells in found.items()}


@dataclass(frozen=True, slots=True)
class OverTime:
    """What differs in each stretch: by cause, and by column, where a row that is on one side only counts as
    "missing" or "extra". Rows without a time are in none."""

    stretches: Stretches
    causes: Counts = field(default_factory=dict)
    columns: Counts = field(default_factory=dict)

    def stepped(self) -> OverTime:
        """The same in stretches as wide as the rows' own step, where they have one: rows that happen every ten minutes,
        as those of windows do, leave the stretches between them empty."""
        filled = sorted({at for cells in self.causes.values() for at, count in enumerate(cells) if count})
        step = gcd(*(after - before for before, after in pairwise(filled))) if len(filled) >= FEWEST else 1
        if step <= 1:
            return self
        wide = Stretches(self.stretches.start, step * self.stretches.width, -(-self.stretches.count // step))
        merged = [
            {
                name: tuple(sum(cells[at : at + step]) for at in range(0, len(cells), step))
                for name, cells in counts.items()
            }
            for counts in (self.causes, self.columns)
        ]
        return OverTime(wide, *merged)

    def as_json(self) -> dict[str, Any]:
        return {
            "start": self.stretches.start.isoformat(),
            "seconds": self.stretches.width.total_seconds(),
            "causes": {name: list(counts) for name, counts in self.causes.items()},
            "columns": {name: list(counts) for name, counts in self.columns.items()},
        }
