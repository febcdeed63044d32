"""Savepoints: checkpoints of all queries of a run, kept under a name whatever Spark purges.

    taken = take(home, run, queries, "before-the-release")

A folder for each below the storage root's `savepoints`, with one folder for each query and `savepoint.json`, which is
written last: without it there is no savepoint. The files are
hard links where the file system has them, so a savepoint costs what the run purges later on. The run may go on
meanwhile: a committed batch's files are finished, and one that is purged just now is no loss, there is a newer batch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from rekappa.checkpoints.files import appearing, listed, named_in, take_over
from rekappa.checkpoints.points import (
    CheckpointFile,
    RestartPoint,
    needed_files,
    restart_points,
)
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.spark.offsetlog import logged_batch
from rekappa.storage.location import Location

VERSION = 1
EVERY, DENSE, THINNED, KEPT = timedelta(minutes=15), timedelta(hours=6), timedelta(hours=1), timedelta(days=3)
"""How often a live run takes a savepoint by itself; for how long all of these are kept; how far apart those are that
stay after that; and for how long they do."""
_ATTEMPTS = 5
_FILE = "savepoint.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_AUTOMATIC, _MOMENT = "auto-", "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True, slots=True)
class Savepoint:
    """`batches` says which micro-batch of each query it holds, `committed` when each was. One whose `savepoint.json` is
    damaged holds none that anybody knows."""

    name: str
    app: str
    run: str
    taken: datetime
    batches: Mapping[str, int]
    committed: Mapping[str, datetime]
    damaged: bool = False

    @property
    def automatic(self) -> bool:
        return self.name.startswith(_AUTOMATIC)

    def as_json(self) -> dict[str, object]:
        committed = {query: at.isoformat() for query, at in self.committed.items()}
        told = {"name": self.name, "app": self.app, "run": self.run, "taken": self.taken.isoformat()}
        return {"version": VERSION, **told, "batches": dict(self.batches), "committed": committed}


def require_name(name: str) -> None:
    """Refuse what can't be a savepoint's name."""
    if not _NAME.fullmatch(name):
        raise RunError(f"Cannot name a savepoint {name!r}", hint="Letters, digits, dots, dashes and underscores.")


def lease_of(app: str, name: str) -> str:
    """What one holds who takes a savepoint of a name that others may choose too."""
    return f"savepoint {app}/{name}"


def take(home: Home, app: str, run: str, queries: Iterable[str], name: str, at: datetime | None = None) -> Savepoint:
    """Keep each query's newest restorable batch, as of now or of the moment `at`. Called by one process at a time for
    a name.

    Refuses a name that is taken, and a query without such a batch.
    """
    require_name(name)
    target = home.savepoints(app) / name
    points: dict[str, RestartPoint] = {}
    try:
        with appearing(target, _FILE):
            for query in sorted(queries):
                points[query] = _keep_newest(home.checkpoint(app, run) / query, target / query)
            batches = {query: point.batch for query, point in points.items()}
            committed = {query: point.committed for query, point in points.items()}
            made = Savepoint(name, app, run, at or datetime.now(UTC), batches, committed)
            (target / _FILE).write(json.dumps(made.as_json(), indent=2) + "\n")
    except FileExistsError:
        hint = f"Choose another name, or `rekappa savepoint drop {app} {name}`."
        raise RunError(f"Cannot take savepoint {name!r}: there is one of that name", hint=hint) from None
    return made


def would_take(home: Home, app: str, run: str, queries: Iterable[str]) -> dict[str, int]:
    """The batch of each query that `take` would keep now; refuses as that does."""
    folder = home.checkpoint(app, run)
    return {query: _newest(folder / query, listed(folder / query)).batch for query in sorted(queries)}


def passed_over(home: Home, app: str, run: str, batches: Mapping[str, int]) -> dict[str, RestartPoint]:
    """The queries whose next batch after these was committed, and can't be restored."""
    found: dict[str, RestartPoint] = {}
    for query, batch in batches.items():
        folder = home.checkpoint(app, run) / query
        points = (one for one in restart_points(listed(folder)) if one.batch == batch + 1)
        found.update((query, read) for one in points if not (read := _as_read(folder, one)).restorable)
    return found


def _keep_newest(source: Location, into: Location) -> RestartPoint:
    for _ in range(_ATTEMPTS):
        try:
            files = listed(source)
            point = _newest(source, files)
            take_over(source, needed_files(files, point.batch, named_in(source)), into)
        except FileNotFoundError:
            # The run went on and purged it: there is a newer one.
            into.remove()
            continue
        return point
    raise _none(source)


def _newest(source: Location, files: Mapping[str, CheckpointFile]) -> RestartPoint:
    whole = (one for one in reversed(restart_points(files)) if one.restorable)
    point = next((one for one in whole if _as_read(source, one).restorable), None)
    if point is None:
        raise _none(source)
    return point


def _as_read(folder: Location, point: RestartPoint) -> RestartPoint:
    """The point, which lacks its log if that is there and damaged."""
    if point.lacking or logged_batch(folder, point.batch) is not None:
        return point
    return replace(point, lacking=(f"offsets/{point.batch} (unreadable)",))


def _none(source: Location) -> RunError:
    return RunError(
        f"Cannot take a savepoint of query {source.name!r}: it has no batch that can be restored",
        hint="`rekappa checkpoints APP` says what its batches lack. One that has not committed a batch yet has none.",
    )


def savepoints(home: Home, app: str) -> tuple[Savepoint, ...]:
    """The app's savepoints, oldest first."""
    folder = home.savepoints(app)
    found = [_read(app, folder / name) for name in folder.names() if (folder / name / _FILE).exists()]
    return tuple(sorted(found, key=lambda one: (one.taken, one.name)))


def savepoint(home: Home, app: str, name: str) -> Savepoint:
    """The savepoint of that name; refused with the names there are."""
    found = {one.name: one for one in savepoints(home, app)}
    if name not in found:
        hint = f"There are: {', '.join(found)}." if found else f"`rekappa savepoint take {app}` takes one."
        raise RunError(f"Cannot find savepoint {name!r} of {app!r}", hint=hint)
    return found[name]


def drop(home: Home, one: Savepoint) -> None:
    """Forget a savepoint; what the run itself still has stays."""
    folder = home.savepoints(one.app) / one.name
    # Without this file there is no savepoint, whatever is left of it.
    (folder / _FILE).remove()
    folder.remove()


def name_for(at: datetime, *, automatic: bool) -> str:
    """A name that says when: of a person's savepoint without one, or of an automatic one."""
    return f"{_AUTOMATIC if automatic else ''}{at.astimezone(UTC):{_MOMENT}}"


def _moment(name: str) -> datetime | None:
    """When an automatic savepoint was begun; None for the name of another."""
    try:
        return datetime.strptime(name, _AUTOMATIC + _MOMENT).replace(tzinfo=UTC)
    except ValueError:
        return None


def is_due(known: Iterable[Savepoint], run: str, now: datetime, every: timedelta = EVERY) -> bool:
    """Whether the run shall take an automatic savepoint now."""
    return all(now - one.taken >= every for one in known if one.automatic and one.run == run)


def outlived(known: Iterable[Savepoint], now: datetime) -> tuple[Savepoint, ...]:
    """The automatic savepoints that are too old, or that lie too close together for their age."""
    gone: list[Savepoint] = []
    last: dict[str, datetime] = {}
    for one in sorted((one for one in known if one.automatic), key=lambda one: one.taken):
        age = now - one.taken
        close = one.run in last and one.taken - last[one.run] < THINNED
        if age > KEPT or (age > DENSE and close):
            gone.append(one)
        else:
            last[one.run] = one.taken
    return tuple(gone)


def keep_points(home: Home, app: str, run: str, queries: Iterable[str], now: datetime) -> Savepoint | None:
    """What a live run calls now and then: take an automatic savepoint if one is due and anything was committed since
    the last one, drop those that have outlived their use."""
    known, queries = savepoints(home, app), sorted(queries)
    made = None
    if is_due(known, run, now) and not _holds_newest(home, known, app, run, queries):
        made = take(home, app, run, queries, name_for(now, automatic=True), now)
    for one in outlived(known, now):
        drop(home, one)
    _drop_halves(home, app, now)
    return made


def _drop_halves(home: Home, app: str, now: datetime) -> None:
    """Remove what a kill has left of automatic savepoints: nobody takes one of the same name again."""
    for name in home.savepoints(app).names():
        folder = home.savepoints(app) / name
        taken = _moment(name)
        if taken is not None and now - taken > DENSE and not (folder / _FILE).exists():
            folder.remove()


def _holds_newest(home: Home, known: Iterable[Savepoint], app: str, run: str, queries: Iterable[str]) -> bool:
    """Whether the run's last automatic savepoint holds the newest batch of each query: nothing came since."""
    own = [one for one in known if one.automatic and one.run == run]
    if not own:
        return False
    newest = {}
    for query in queries:
        names = (home.checkpoint(app, run) / query / "commits").names()
        newest[query] = max((int(name) for name in names if name.isdigit()), default=-1)
    return dict(own[-1].batches) == newest


def _read(app: str, folder: Location) -> Savepoint:
    path = folder / _FILE
    try:
        told = json.loads(path.read_text())
        if told["version"] > VERSION:
            raise RunError(f"Cannot read {path}: it is of version {told['version']}, this rekappa knows {VERSION}")
        committed = {query: datetime.fromisoformat(at) for query, at in told["committed"].items()}
        taken = datetime.fromisoformat(told["taken"])
        return Savepoint(told["name"], told["app"], told["run"], taken, dict(told["batches"]), committed)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Savepoint(folder.name, app, "", path.modified(), {}, {}, damaged=True)
