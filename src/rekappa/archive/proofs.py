"""What was found out about the offsets of one Kafka partition."""

from __future__ import annotations

from dataclasses import dataclass

SHOWN = 20


@dataclass(frozen=True, slots=True)
class PartitionProof:
    """What the archive holds of one Kafka partition. Ranges are [first, last], both inclusive, at most `SHOWN`.

    `missing` offsets may be events that were lost, and `gaps` shows them; of those, Kafka has no longer, or can't be
    asked for, `untold`. `empty` offsets lie in gaps too: Kafka is there, and has no message for a reader.
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

    @property
    def sound(self) -> bool:
        return not self.missing and not self.repeated
