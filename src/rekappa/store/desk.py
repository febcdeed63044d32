"""What the run store keeps beside runs: tasks, logins, sessions, overrides, and who did what.

Every method is one short transaction; nothing is cached between calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any

from sqlalchemy import Row, Select, delete, insert, select, update

from rekappa.errors import RunError, StoreError
from rekappa.home import Home
from rekappa.masking import hidden
from rekappa.store.address import Address
from rekappa.store.database import Database
from rekappa.store.dialects import clock, upsert
from rekappa.store.people import Deed, KeptOverride, Person, Session, UserRole
from rekappa.store.tables import AUDIT, OVERRIDES, SESSIONS, TASKS, USERS
from rekappa.store.task import Task, TaskState

DEEDS_KEPT = timedelta(days=2 * 365)
"""How long the audit trail remembers: longer than anything that it tells of can be undone."""


class Desk:
    """The same database as the run store's."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, home: Home) -> Desk:
        """The project's, made if there is none yet."""
        address = Address.of(home)
        if address == Address.of_file(home.store):
            home.made()
        return cls(Database(address))

    @classmethod
    def found(cls, home: Home) -> Desk | None:
        """The project's, for those who only look; None if nothing was ever written there."""
        try:
            return cls(Database(Address.of(home), create=False))
        except StoreError:
            raise
        except RunError:
            return None

    def add_task(self, task: Task, unless: Callable[[Task], bool] | None = None) -> Task:
        """Add a task; but answer one of the same command that is going, if `unless` says so of it. Of many that ask at
        once, from wherever, one adds its own."""
        with self._database.deciding() as db:
            for going in db.execute(_going(select(TASKS))) if unless else ():
                other = _task(going)
                if unless and other.words == task.words and unless(other):
                    return other
            row = {one.name: getattr(task, one.name) for one in fields(Task)}
            db.execute(insert(TASKS).values({**row, "created": clock(db), "words": list(task.words)}))
        return self.task(task.id)

    def task(self, task_id: str) -> Task:
        with self._database.reading() as db:
            row = db.execute(select(TASKS).where(TASKS.c.id == task_id)).one_or_none()
        if row is None:
            raise RunError(f"Cannot find task {task_id!r}", hint="`rekappa jobs` lists them.")
        return _task(row)

    def tasks(self, *, app: str | None = None, run: str | None = None, limit: int = 200) -> list[Task]:
        """Newest first; those that are going come whatever the limit."""
        chosen = select(TASKS).order_by(TASKS.c.created.desc(), TASKS.c.id.desc())
        chosen = chosen if app is None else chosen.where(TASKS.c.app == app)
        chosen = chosen if run is None else chosen.where(TASKS.c.run == run)
        with self._database.reading() as db:
            found = [_task(row) for row in db.execute(chosen.limit(limit))]
            rest = [_task(row) for row in db.execute(_going(chosen))] if len(found) == limit else []
        known = {one.id for one in found}
        return [*found, *(one for one in rest if one.id not in known)]

    def change_task(self, task_id: str, **changes: Any) -> Task:
        """Change fields by their names; `now` names those that get the store's time."""
        now: Sequence[str] = changes.pop("now", ())
        with self._database.changing() as db:
            told = {**changes, **dict.fromkeys(now, clock(db))} if now else changes
            if told.get("error"):
                told = {**told, "error": hidden(told["error"])}
            db.execute(update(TASKS).where(TASKS.c.id == task_id).values(**told))
        return self.task(task_id)

    def drop_tasks(self, older_than: timedelta, host: str) -> list[str]:
        """Forget tasks of this host that have ended so long ago; answers which."""
        with self._database.changing() as db:
            old = (TASKS.c.ended < clock(db) - older_than) & (TASKS.c.host == host)
            found = list(db.scalars(select(TASKS.c.id).where(old)))
            db.execute(delete(TASKS).where(old))
        return found

    def tell(self, who: str, face: str, what: str, app: str | None = None, run: str | None = None, **more: Any) -> None:
        """Write down who does what, before it is done, and let go of what is older than `DEEDS_KEPT`. `more` must hold
        no secret."""
        with self._database.changing() as db:
            row, now = {"who": who, "face": face, "what": what, "app": app, "run": run, "details": more}, clock(db)
            db.execute(delete(AUDIT).where(AUDIT.c.at < now - DEEDS_KEPT))
            db.execute(insert(AUDIT).values(at=now, **row))

    def deeds(self, *, app: str | None = None, run: str | None = None, limit: int = 100) -> list[Deed]:
        """The audit trail, newest first."""
        chosen = select(AUDIT).order_by(AUDIT.c.at.desc(), AUDIT.c.number.desc()).limit(limit)
        chosen = chosen if app is None else chosen.where(AUDIT.c.app == app)
        chosen = chosen if run is None else chosen.where(AUDIT.c.run == run)
        with self._database.reading() as db:
            return [Deed(**{one.name: getattr(row, one.name) for one in fields(Deed)}) for row in db.execute(chosen)]

    def put_person(self, name: str, role: UserRole, secret: str) -> None:
        """Add a login, or give it another role and secret; its sessions end."""
        with self._database.changing() as db:
            row = {"role": role, "secret": secret, "created": clock(db)}
            made = upsert(db)(USERS).values(name=name, **row)
            db.execute(made.on_conflict_do_update(index_elements=["name"], set_=row))
            db.execute(delete(SESSIONS).where(SESSIONS.c.name == name))

    def drop_person(self, name: str) -> None:
        with self._database.changing() as db:
            if db.execute(delete(USERS).where(USERS.c.name == name)).rowcount != 1:
                raise RunError(f"Cannot find user {name!r}", hint="`rekappa users list` shows them.")
            db.execute(delete(SESSIONS).where(SESSIONS.c.name == name))

    def people(self) -> list[Person]:
        with self._database.reading() as db:
            return [Person(**row._mapping) for row in db.execute(select(USERS).order_by(USERS.c.name))]

    def begin_session(self, digest: str, name: str, role: UserRole, form_key: str, lasts: timedelta) -> None:
        """Remember a session by the digest of its token; sessions that have expired are forgotten."""
        with self._database.changing() as db:
            now = clock(db)
            db.execute(delete(SESSIONS).where(SESSIONS.c.expires <= now))
            row = {"digest": digest, "name": name, "role": role, "form_key": form_key, "expires": now + lasts}
            db.execute(insert(SESSIONS).values(row))

    def session(self, digest: str) -> Session | None:
        """Who has the token with this digest; None if it has expired."""
        with self._database.reading() as db:
            chosen = select(SESSIONS).where(SESSIONS.c.digest == digest, SESSIONS.c.expires > clock(db))
            row = db.execute(chosen).one_or_none()
        return None if row is None else Session(row.name, row.role, row.form_key, row.expires)

    def end_session(self, digest: str) -> None:
        with self._database.changing() as db:
            db.execute(delete(SESSIONS).where(SESSIONS.c.digest == digest))

    def override(self, app: str, key: str, value: str | None, who: str) -> None:
        """Set a value for the next runs of an app; None takes it back."""
        with self._database.changing() as db:
            db.execute(delete(OVERRIDES).where(OVERRIDES.c.app == app, OVERRIDES.c.key == key))
            if value is not None:
                db.execute(insert(OVERRIDES).values(app=app, key=key, value=value, who=who, at=clock(db)))

    def overrides(self, app: str) -> list[KeptOverride]:
        chosen = select(OVERRIDES).where(OVERRIDES.c.app == app).order_by(OVERRIDES.c.key)
        with self._database.reading() as db:
            return [KeptOverride(**_mapping(row)) for row in db.execute(chosen)]


def _mapping(row: Row[Any]) -> Mapping[str, Any]:
    return dict(row._mapping)


def _going(tasks: Select[Any]) -> Select[Any]:
    return tasks.where(TASKS.c.state.in_([state for state in TaskState if state.going]))


def _task(row: Row[Any]) -> Task:
    return Task(**{**_mapping(row), "words": tuple(row.words)})
