"""A run: one execution of an app, live, backfill, control or archive, with everything that is known of it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from rekappa.store.code import Code

_MOMENT = "%Y%m%d_%H%M%S"


class Kind(StrEnum):
    LIVE = "live"
    BACKFILL = "backfill"
    CONTROL = "control"
    ARCHIVE = "archive"


class State(StrEnum):
    """Where a run is. A run is in exactly one; only the last three are the end of it.

    Abandoned is a live run that was rewound: another one goes on from one of its batches.
    """

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    FAILED = "failed"
    DIED = "died"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"

    @property
    def going(self) -> bool:
        """A process is at work on it."""
        return self in (State.RUNNING, State.PAUSED)

    @property
    def resumable(self) -> bool:
        return self in (State.CREATED, State.STOPPED, State.FAILED, State.DIED)


class Wish(StrEnum):
    """What a person wants of a run; the run looks at it between chunks and slices."""

    GO = "go"
    PAUSE = "pause"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Run:
    """`spec` is what was asked for and never changes; `progress` is the newest that was seen.

    `validation` and `publication` are written by `rekappa validate`, `publish` and `undo`. `pid` and `host` are those
    of the process that holds the run's lease. `logs` are the files that tell of it, in the log folder of the project
    on the machine that each is named after. `folder` is the app's, on the machine that began the run.
    """

    id: str
    app: str
    kind: Kind
    folder: str
    state: State = State.CREATED
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    started: datetime | None = None
    ended: datetime | None = None
    pid: int | None = None
    host: str | None = None
    spec: Mapping[str, Any] = field(default_factory=dict)
    progress: Mapping[str, Any] = field(default_factory=dict)
    validation: Mapping[str, Any] | None = None
    publication: Mapping[str, Any] | None = None
    error: str | None = None
    logs: Sequence[str] = ()
    wish: Wish = Wish.GO

    @property
    def owner(self) -> str | None:
        """Who answered for the app when the run was made."""
        return self.spec.get("owner")


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one topic of one source stood at the end of a micro-batch: the next offset of each partition.

    A query that joins a source with itself reads it through several readers, counted from 0.
    """

    source: str
    region: str
    topic: str
    ends: Mapping[int, int]
    reader: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """One committed micro-batch of one query. Number -1 is the position before the first."""

    run: str
    query: str
    number: int
    positions: tuple[Standing, ...]
    watermark: datetime | None
    committed: datetime


@dataclass(frozen=True, slots=True)
class Start:
    """A query was started: from micro-batch `batch` on it ran `code` and wrote to `target`, until the next start.

    A backfill or control has one for all its queries, with an empty query name.
    """

    run: str
    query: str
    batch: int
    code: Code
    target: str = ""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class Fork:
    """A run that goes on where another one is abandoned: of each query, by its name, the last batch that counts."""

    run: Run
    abandoned: str
    lasts: Mapping[str, int]


def new_run_id(kind: Kind) -> str:
    """Sorts by time, says what it is, and is a legal part of a table's name."""
    return f"{kind}_{datetime.now(UTC):{_MOMENT}}_{secrets.token_hex(2)}"


def made_at(run_id: str) -> datetime | None:
    """When the id was drawn; None for what is no run's id."""
    try:
        return datetime.strptime("_".join(run_id.split("_")[1:3]), _MOMENT).replace(tzinfo=UTC)
    except ValueError:
        return None
