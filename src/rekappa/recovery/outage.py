"""What advice on an outage is given about. Gathered by `rekappa.recovery.facts`; nothing here asks anybody."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from rekappa.timeline import Window


class Trouble(StrEnum):
    """What was wrong in the window."""

    STOPPED = "stopped"
    WRONG = "wrong"


class Memory(StrEnum):
    """What a query keeps of past events."""

    NONE = "no state"
    BOUNDED = "state that ends"
    OPEN = "state that nothing ends"
    CUSTOM = "custom state"


class SinkPlace(StrEnum):
    """What a sink can do about rows that are wrong."""

    TABLE = "a table or files, in which a window is replaced"
    SERVICE = "a service that upserts by key"
    TOPIC = "a topic, in which what was sent stays"


@dataclass(frozen=True, slots=True)
class PointFact:
    """The newest batch at or before the window's start that can be restored. `holes` is what neither Kafka nor the
    archive has of what would be read again from there; `kept_until` when Kafka may begin to drop it."""

    batch: int
    committed: datetime
    holes: tuple[str, ...] = ()
    kept_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class QueryFacts:
    """One query. `remembers` is how long an event stays in state that ends; `refused` why no backfill of the window can
    be planned; `consumers` the known apps that read what it writes; `lookups` tables that it joins as they are now;
    `clock` what it reads of the clock; `takes` how long a backfill of the window is thought to take."""

    sink: str
    place: SinkPlace = SinkPlace.TABLE
    memory: Memory = Memory.NONE
    remembers: timedelta | None = None
    point: PointFact | None = None
    refused: str | None = None
    consumers: tuple[str, ...] = ()
    lookups: tuple[str, ...] = ()
    clock: tuple[str, ...] = ()
    takes: timedelta | None = None


@dataclass(frozen=True, slots=True)
class OutageFacts:
    """What was gathered. `state_wrong` is what a person said of it, None if nothing.

    `dropped` names the partitions of which Kafka has dropped what the run reads next, `holes` what of it the archive
    lacks too. `archived_since` is from when on the archive of every source is there, `whole` whether that is from the
    very first event of the topics. `behind` counts the events that wait, `kept_until` is when Kafka may begin to drop
    them for their age.
    """

    app: str
    window: Window
    now: datetime
    trouble: Trouble
    queries: tuple[QueryFacts, ...]
    state_wrong: bool | None = None
    run: str | None = None
    going: bool = False
    behind: int = 0
    kept_until: datetime | None = None
    dropped: tuple[str, ...] = ()
    holes: tuple[str, ...] = ()
    archived_since: datetime | None = None
    whole: bool = False
