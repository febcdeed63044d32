"""What a rewind will do, query by query and sink by sink: a frozen value. `--dry-run` prints it, `rewind` carries it
out, and it stays in the record of the run that goes on, so that it can be completed and undone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from rekappa.checkpoints.restarts import Leg
from rekappa.errors import RunError
from rekappa.recovery.graph import ChainedQuery, Flow
from rekappa.storage.location import Location

VERSION = 2
SLACK = timedelta(seconds=5)
"""A commit to a sink is stamped by a clock that may be this far from that of the file system."""


@dataclass(frozen=True, slots=True)
class SinkReset:
    """What becomes of what the abandoned batches wrote to one sink.

    `removed` rows go, `restored` rows come back as they were; `told` says in words what happens, and what can't.
    """

    sink: str = ""
    target: str = ""
    removed: int = 0
    restored: int = 0
    told: str = ""


@dataclass(frozen=True, slots=True)
class QueryRewind:
    """One query: it goes on after `batch` of `run`, whose checkpoint is in `folder`; -1 and no folder is no state.
    `last` is the newest batch of the run that is abandoned.

    Read back from a record it has neither folder nor files: the fork was built before. `abandoned` are the batches that
    no longer count, `dead` the runs of which none does, `since` when the first of them can have been written. `before`
    are the first messages that it must not have read, as people see them: others abandon them. `notes` are what the
    preflight found worth saying.
    """

    query: str
    run: str
    batch: int
    last: int | None
    committed: datetime | None
    savepoint: str | None
    folder: Location | None
    abandoned: tuple[Leg, ...]
    dead: tuple[str, ...]
    since: datetime
    files: tuple[str, ...] = ()
    reset: SinkReset = SinkReset()
    before: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in ("query", "run", "batch", "last", "savepoint")},
            "committed": self.committed.isoformat() if self.committed else None,
            "folder": str(self.folder) if self.folder else None,
            "files": len(self.files),
            "abandoned": [asdict(leg) for leg in self.abandoned],
            "dead": list(self.dead),
            "since": self.since.isoformat(),
            "reset": asdict(self.reset),
            "before": list(self.before),
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class RewindPlan:
    """`run` is abandoned, `operation` is the id of the run that goes on; that of the app that is meant names the whole
    operation. `downstream` are the plans of the apps that are rewound with it, `flows` who reads from whom."""

    operation: str
    app: str
    run: str
    queries: tuple[QueryRewind, ...]
    downstream: tuple[RewindPlan, ...] = ()
    flows: tuple[Flow, ...] = ()

    @property
    def apps(self) -> tuple[RewindPlan, ...]:
        """The plan of every app, that which is meant first."""
        return (self, *self.downstream)

    def as_json(self) -> dict[str, Any]:
        told = {"version": VERSION, "operation": self.operation, "app": self.app, "run": self.run}
        return {
            **told,
            "queries": [one.as_json() for one in self.queries],
            "downstream": [one.as_json() for one in self.downstream],
            "flows": [asdict(one) for one in self.flows],
        }


def planned_again(told: Mapping[str, Any]) -> RewindPlan:
    """The plan as it stands in a run's record; the files of its forks are there already."""
    if told["version"] > VERSION:
        raise RunError(f"Cannot read a rewind of version {told['version']}: this rekappa knows {VERSION}")
    return RewindPlan(
        told["operation"],
        told["app"],
        told["run"],
        tuple(_query(one) for one in told["queries"]),
        tuple(planned_again(one) for one in told.get("downstream", ())),
        tuple(
            Flow(**{**one, "writer": ChainedQuery(**one["writer"]), "reader": ChainedQuery(**one["reader"])})
            for one in told.get("flows", ())
        ),
    )


def _query(told: Mapping[str, Any]) -> QueryRewind:
    return QueryRewind(
        query=told["query"],
        run=told["run"],
        batch=told["batch"],
        last=told["last"],
        committed=datetime.fromisoformat(told["committed"]) if told["committed"] else None,
        savepoint=told["savepoint"],
        folder=None,
        abandoned=tuple(Leg(**leg) for leg in told["abandoned"]),
        dead=tuple(told["dead"]),
        since=datetime.fromisoformat(told["since"]),
        reset=SinkReset(**told["reset"]),
        before=tuple(told.get("before", ())),
        notes=tuple(told["notes"]),
    )
