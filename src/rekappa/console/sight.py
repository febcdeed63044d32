"""What one would be woken for, as numbers: one look at the store and at what is known of the archives."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from rekappa.console.context import Console
from rekappa.console.pages.apps import archive_status, lag_of
from rekappa.operations.core import Core
from rekappa.store.record import Kind, Run, State
from rekappa.store.task import Task
from rekappa.tasks.standing import newest_of_each, tasks


@dataclass(frozen=True, slots=True)
class SeenArchive:
    app: str
    source: str
    lag: int | None
    dead_letters: int
    complete_until: datetime | None


@dataclass(frozen=True, slots=True)
class Sight:
    """`counts` are runs by app, kind and state; `lags` of the live runs that are going, by app."""

    at: datetime
    counts: dict[tuple[str, Kind, State], int] = field(default_factory=dict)
    lags: dict[str, int] = field(default_factory=dict)
    newest: tuple[Run, ...] = ()
    tasks: tuple[Task, ...] = ()
    archives: tuple[SeenArchive, ...] = ()


def look(console: Console, now: datetime) -> Sight:
    core = Core(console.home, console.folder, console.owner, "console")
    store = core.store()
    lags, archives = {}, []
    for app in core.apps():
        live = next(iter(store.page(1, app=app.name, kind=Kind.LIVE)), None)
        if (lag := lag_of(live)) is not None:
            lags[app.name] = lag
        for one in archive_status(console, app).value or ():
            until = [datetime.fromisoformat(at) for at in one["complete_until"].values()]
            archives.append(
                SeenArchive(app.name, one["source"], one["lag"], one["dead_letters"], min(until) if until else None)
            )
    newest = tuple(store.page(200))
    return Sight(now, store.counts(), lags, newest, newest_of_each(tasks(core.home, limit=200)), tuple(archives))
