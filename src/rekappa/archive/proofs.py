"""What was found out about the offsets of one Kafka partition."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rekappa.timeline import instant

SHOWN = 20


@dataclass(frozen=True, slots=True)
class PartitionProof:
    """What the archive holds of one Kafka partition. Ranges are [first, last], both inclusive, at most `SHOWN`.

    `missing` offsets may be events that were lost, and `gaps` shows them; of those, Kafka has no longer, or can't be
    asked for, `untold`. `empty` offsets lie in gaps too: Kafka is there, and has no message for a reader. `gap_times`
    says for each gap between which moments its messages were ingested: their own, where Kafka has them, else those of
    the messages around it; None where those have no time.
    """

    source: str
    topic: str
    region: str
    partition: int
    first: int
    last: int
    rows: int
    dead: int
    gaps: tuple[tuple[int, int], ...]
    duplicates: tuple[tuple[int, int], ...]
    missing: int
    repeated: int
    untold: int
    empty: int
    gap_times: tuple[tuple[datetime, datetime] | None, ...] = ()

    @property
    def sound(self) -> bool:
        return not self.missing and not self.repeated


def times_of(one: int | None, other: int | None) -> tuple[datetime, datetime] | None:
    """Two moments, from microseconds, in their order: that of Kafka's timestamps need not be that of its offsets."""
    if one is None or other is None:
        return None
    return instant(min(one, other)), instant(max(one, other))
