"""What production read of a source, batch by batch, from its recorded micro-batches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from rekappa.store.record import Batch


@dataclass(frozen=True, slots=True)
class Reading:
    """Offsets [start, end) of one partition, read while the watermark stood at `watermark`."""

    topic: str
    partition: int
    start: int
    end: int
    watermark: datetime


def readings(batches: Iterable[Batch], source: str) -> list[Reading]:
    """As far as the watermark is known."""
    found: list[Reading] = []
    before: dict[tuple[str, int], int] = {}
    for batch in sorted(batches, key=lambda one: one.number):
        for position in batch.positions:
            for partition, end in position.ends.items() if position.source == source else ():
                place = (position.topic, partition)
                start = before.get(place)
                # A partition that was not there before is read from its beginning.
                start = 0 if start is None and batch.number >= 0 and before else start
                if start is not None and end > start and batch.watermark is not None:
                    found.append(Reading(*place, start, end, batch.watermark))
                before[place] = end
    return found
