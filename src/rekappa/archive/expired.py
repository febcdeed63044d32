"""What was dropped from an archive on purpose, as the table itself says it.

One property holds the instant before which nothing is there any more, and for every Kafka partition the next offset
after the highest that was dropped: below it, offsets that are missing are not lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rekappa.timeline import parse_instant

PROPERTY = "rekappa.expired"

Place = tuple[str, str, int]
"""Topic, region and number of a Kafka partition."""


@dataclass(frozen=True, slots=True)
class Expired:
    """`before` is None where nothing was ever dropped."""

    before: datetime | None = None
    floors: Mapping[Place, int] = field(default_factory=dict)

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Expired:
        told = properties.get(PROPERTY)
        if told is None:
            return cls()
        kept = json.loads(told)
        floors = {(topic, region, number): floor for topic, region, number, floor in kept["floors"]}
        return cls(parse_instant(kept["before"]), floors)

    def and_then(self, before: datetime, floors: Iterable[tuple[Place, int]]) -> Expired:
        """After more has been dropped."""
        now = dict(self.floors)
        for place, floor in floors:
            now[place] = max(floor, now.get(place, floor))
        return Expired(max(before, self.before or before), now)

    def as_property(self) -> str:
        assert self.before is not None
        floors = [[*place, floor] for place, floor in sorted(self.floors.items())]
        return json.dumps({"before": self.before.astimezone(UTC).isoformat(), "floors": floors})
