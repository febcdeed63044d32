"""Saying what a live run waits for: a broker that is away is told within seconds, not when Kafka's client gives up."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

SLOW = 8.0
"""Seconds that a query may take to ask its sources what is new before somebody is told."""
_ASKING = re.compile(r"Getting offsets from (?:KafkaV2|Kafka)\w*\[Subscribe\w*\[(?P<topics>[^\]]*)\]")


def asked_topics(message: str) -> str | None:
    """The topics that Spark is asking Kafka about, by its own account of what a query does; None if it does not."""
    found = _ASKING.search(message)
    return found["topics"] if found else None


@dataclass(slots=True)
class Waits:
    """Tells once when a query has waited for Kafka too long, and once when it goes on. `addresses` are by topic."""

    tell: Callable[[str], None]
    addresses: Mapping[str, str] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    _since: dict[str, float] = field(default_factory=dict)
    _told: dict[str, str] = field(default_factory=dict)

    def look(self, messages: Mapping[str, str]) -> str | None:
        """What the run waits for now, if for anything; `messages` are what each query says that it does."""
        now, waiting = self.clock(), {}
        for query, message in messages.items():
            topics = asked_topics(message)
            if topics is None:
                self._since.pop(query, None)
            elif now - self._since.setdefault(query, now) >= SLOW:
                where = self.addresses.get(topics)
                waiting[query] = (
                    f"waiting for Kafka{f' at {where}' if where else ''}: it does not say what is new in {topics}"
                )
        for query, text in waiting.items():
            if query not in self._told:
                self.tell(f"query {query}: {text}")
        for query in [one for one in self._told if one not in waiting]:
            self.tell(f"query {query}: goes on")
        self._told = waiting
        return next(iter(waiting.values()), None)
