"""The run store: which runs there were, where they are, the code they ran, and production's micro-batches.

One for a project or for a team (`address`), safe for several processes and machines. The store never says more than
the checkpoint does: batches are copied from Spark's own log after it has committed them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, fields, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, insert, literal, select, update

from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.plan.speeds import Speed
from rekappa.store import leases
from rekappa.store.address import Address
from rekappa.store.claim import Claim
from rekappa.store.database import Database
from rekappa.store.dialects import clock, upsert
from rekappa.store.leases import Lease
from rekappa.store.record import Batch, Fork, Kind, Run, Start, State
from rekappa.store.rows import add_batches, batch_of, change_run, put_start, run_of, run_row, start_of
from rekappa.store.samples import Sampled, samples
from rekappa.store.tables import BATCHES, CODE, LEASES, RUNS, SAMPLES, SPEEDS, STARTS, TASKS

JUST_KEPT = timedelta(hours=1)
"""How long code is kept that no run has been recorded with: its run may be about to be."""
LAST = "last"
"""Names the newest backfill of the project, where a person would otherwise copy its id."""

_AT_ONCE = 10_000
"""Names in one statement; PostgreSQL takes 65,535 values."""


class RunStore:
    """Every method is one short transaction; nothing is cached between calls."""

    def __init__(self, address: Address, *, create: bool = True) -> None:
        self._database = Database(address, create=create)

    @classmethod
    def open(cls, home: Home) -> RunStore:
        """The project's store, made if there is none yet."""
        return cls(Address.of(home.made()))

    @classmethod
    def existing(cls, home: Home) -> RunStore:
        """The project's store, for commands that only look or go on: refuses one in which nothing has run."""
        address = Address.of(home)
        if address == Address.of_file(home.store) and not home.existing().store.is_file():
            raise RunError(f"Cannot find any run in {home.root}: nothing has run there yet")
        return cls(address, create=False)

    def create(self, run: Run) -> Run:
        with self._database.changing() as db:
            db.execute(insert(RUNS).values(run_row(run)))
        return run

    def run(self, run_id: str) -> Run:
        """One run by its id or a unique beginning of it; `last` is the newest backfill."""
        if run_id == LAST:
            return self._last()
        if exact := self._found(RUNS.c.id == run_id):
            return exact[0]
        # SQLite's LIKE takes capitals and small letters for the same.
        alike = self._found(RUNS.c.id.startswith(run_id, autoescape=True)) if run_id else []
        found = [run for run in alike if run.id.startswith(run_id)]
        if len(found) == 1:
            return found[0]
        if found:
            raise RunError(f"Cannot choose a run: {run_id!r} begins {len(found)} run ids", hint="Write more of the id.")
        raise RunError(f"Cannot find run {run_id!r}", hint="`rekappa runs` lists them.")

    def _last(self) -> Run:
        found = self._found(RUNS.c.kind == Kind.BACKFILL, limit=1)
        if not found:
            raise RunError("Cannot find the last backfill: there has been none", hint="`rekappa runs` lists all runs.")
        return found[0]

    def runs(self, app: str | None = None, kind: Kind | None = None) -> list[Run]:
        """Newest first. A run that no process holds any more is answered as died."""
        wanted = [] if app is None else [RUNS.c.app == app]
        return self._found(*wanted, *([] if kind is None else [RUNS.c.kind == kind]))

    def page(
        self,
        limit: int,
        *,
        app: str | None = None,
        kind: Kind | None = None,
        state: State | None = None,
        before: datetime | None = None,
    ) -> list[Run]:
        """So many runs, newest first, made before a moment. A run that died is found as what it was when it did."""
        told = {RUNS.c.app: app, RUNS.c.kind: kind, RUNS.c.state: state}
        wanted = [column == value for column, value in told.items() if value is not None]
        return self._found(*wanted, *([] if before is None else [RUNS.c.created < before]), limit=limit)

    def controls(self, run: Run) -> list[Run]:
        """The control runs that were made for the validation of a backfill, newest first."""
        return [one for one in self.runs(run.app, Kind.CONTROL) if one.spec.get("control_of") == run.id]

    def counts(self) -> dict[tuple[str, Kind, State], int]:
        """How many runs there are of each app, kind and recorded state."""
        columns = (RUNS.c.app, RUNS.c.kind, RUNS.c.state)
        with self._database.reading() as db:
            chosen = select(*columns, func.count().label("runs")).group_by(*columns)
            return {(row.app, row.kind, row.state): row.runs for row in db.execute(chosen)}

    def samples(self, run: str) -> list[Sampled]:
        """How the run went, over time."""
        return samples(self._database, run)

    def _found(self, *wanted: ColumnElement[bool], limit: int | None = None) -> list[Run]:
        chosen = select(RUNS).where(*wanted).order_by(RUNS.c.created.desc(), RUNS.c.id.desc()).limit(limit)
        with self._database.reading() as db:
            found = [run_of(row) for row in db.execute(chosen)]
            held = {lease.run: lease for lease in leases.all_held(db)}
        return [_with_holder(run, held.get(run.id)) for run in found]

    def update(self, run_id: str, **changes: Any) -> Run:
        """Change fields of a run that no process is at work on; the one at work has its `Claim`."""
        with self._database.changing() as db:
            change_run(db, run_id, changes)
        return self.run(run_id)

    def amend(self, run_id: str, changes: Callable[[Run], Mapping[str, Any]]) -> None:
        """Change fields by what the record says, in one step: of two who do it at once, the second sees the first."""
        with self._database.changing() as db:
            row = db.execute(select(RUNS).where(RUNS.c.id == run_id).with_for_update()).one_or_none()
            if row is not None:
                change_run(db, run_id, changes(run_of(row)))

    def fork_runs(self, forks: Iterable[Fork]) -> None:
        """Make runs that go on where others are abandoned, all in one step: each begins with the records of that one's
        micro-batches and code, of each query up to the last batch that counts."""
        with self._database.changing() as db:
            for fork in forks:
                db.execute(insert(RUNS).values(run_row(fork.run)))
                change_run(db, fork.abandoned, {"state": State.ABANDONED, "ended": clock(db)})
                for query, last in fork.lasts.items():
                    for table in (BATCHES, STARTS) if last >= 0 else ():
                        own = (table.c.run == fork.abandoned) & (table.c.query == query) & (table.c.batch <= last)
                        copied = [literal(fork.run.id) if column.name == "run" else column for column in table.c]
                        db.execute(insert(table).from_select(list(table.c), select(*copied).where(own)))

    def settle_runs(self, runs: Iterable[str]) -> None:
        """Say of these runs, in one step, that what they began with is done."""
        with self._database.changing() as db:
            for run in runs:
                change_run(db, run, {"progress": {}})

    def swap_runs(self, pairs: Mapping[str, str]) -> None:
        """Undo `fork_runs`: abandon the runs that went on, and let the others go on; in one step. `pairs` are the
        latter by the former."""
        with self._database.changing() as db:
            for abandoned, back in pairs.items():
                change_run(db, abandoned, {"state": State.ABANDONED, "ended": clock(db), "progress": {}})
                change_run(db, back, {"state": State.STOPPED})

    def claim(self, names: Sequence[str], doing: str) -> Claim:
        """Take the leases of these names for this process, all or none; refused while another holds one of them.

        `doing` is what could not be done then, for the error: "run 'rmi'".
        """
        return Claim(self._database, names, doing)

    def lease(self, name: str) -> Lease | None:
        """Who holds the name, or held it last."""
        with self._database.reading() as db:
            return leases.find(db, name)

    def record_batches(self, batches: Iterable[Batch], by: Claim | None = None) -> None:
        """Add batches; one that is there already is left as it is. Given the claim of the run's process, it writes
        nothing once that has lost its lease."""
        with self._changing(by) as db:
            add_batches(db, batches)

    def batches(self, run: str, query: str) -> list[Batch]:
        """All recorded micro-batches of one query, in order."""
        own = (BATCHES.c.run == run) & (BATCHES.c.query == query)
        with self._database.reading() as db:
            return [batch_of(row) for row in db.execute(select(BATCHES).where(own).order_by(BATCHES.c.batch))]

    def commit_times(self, run: str, query: str, first: int) -> dict[int, datetime]:
        """When each micro-batch of the query was committed, from the batch of number `first` on."""
        own = (BATCHES.c.run == run) & (BATCHES.c.query == query) & (BATCHES.c.batch >= first)
        with self._database.reading() as db:
            return {
                row.batch: row.committed for row in db.execute(select(BATCHES.c.batch, BATCHES.c.committed).where(own))
            }

    def batch_count(self, run: str, before: datetime | None = None) -> int:
        """How many micro-batches `drop_batches` would forget."""
        with self._database.reading() as db:
            return db.scalars(select(func.count()).select_from(BATCHES).where(_of_run(run, before))).one()

    def drop_batches(self, run: str, before: datetime | None = None) -> int:
        """Forget a run's micro-batches, and the lease of a run that is over; answers how many batches there were.

        With `before`, forget those of a run that goes on, committed before then, but for the last of each query: it
        says where the next one begins.
        """
        with self._database.changing() as db:
            if before is None:
                free = (LEASES.c.name == leases.run_lease(run)) & LEASES.c.pid.is_(None)
                db.execute(delete(LEASES).where(free))
                db.execute(delete(SAMPLES).where(SAMPLES.c.run == run))
            return db.execute(delete(BATCHES).where(_of_run(run, before))).rowcount

    def forget(self, gone: Collection[str]) -> None:
        """Drop all that is known of these runs, which are over: the record itself too."""
        with self._database.changing() as db:
            every = list(gone)
            for at in range(0, len(every), _AT_ONCE):
                some = every[at : at + _AT_ONCE]
                for table in (BATCHES, STARTS, SPEEDS, SAMPLES, TASKS):
                    db.execute(delete(table).where(table.c.run.in_(some)))
                free = LEASES.c.name.in_([leases.run_lease(run) for run in some]) & LEASES.c.pid.is_(None)
                db.execute(delete(LEASES).where(free))
                db.execute(delete(RUNS).where(RUNS.c.id.in_(some)))

    def last_batch(self, run: str, query: str) -> int | None:
        own = (BATCHES.c.run == run) & (BATCHES.c.query == query)
        with self._database.reading() as db:
            last: int | None = db.scalar(select(func.max(BATCHES.c.batch)).where(own))
        return last

    def has_written(self, run: str, query: str) -> bool:
        """Whether the query has committed a micro-batch."""
        last = self.last_batch(run, query)
        return last is not None and last >= 0

    def record_start(self, start: Start, by: Claim | None = None) -> None:
        """Say which code a query runs from a batch on. A start that got no batch done is replaced by the next one."""
        with self._changing(by) as db:
            put_start(db, start)

    def starts(self, run: str, query: str | None = None) -> list[Start]:
        """The starts of a run, or of one of its queries, in the order of their batches."""
        chosen = select(STARTS).where(STARTS.c.run == run).order_by(STARTS.c.batch, STARTS.c.at, STARTS.c.query)
        if query is not None:
            chosen = chosen.where(STARTS.c.query == query)
        with self._database.reading() as db:
            return [start_of(row) for row in db.execute(chosen)]

    def has_code(self, digest: str) -> bool:
        """Whether that code is kept; asked for anew, it is as good as kept just now."""
        with self._database.changing() as db:
            return db.execute(update(CODE).where(CODE.c.hash == digest).values(kept=clock(db))).rowcount == 1

    def keep_code(self, digest: str, files: bytes) -> None:
        """Keep an app's code, packed, once per hash."""
        with self._database.changing() as db:
            row = upsert(db)(CODE).values(hash=digest, files=files, kept=clock(db))
            db.execute(row.on_conflict_do_nothing())

    def code(self, digest: str) -> bytes | None:
        """The code that was kept under the hash."""
        with self._database.reading() as db:
            return db.scalar(select(CODE.c.files).where(CODE.c.hash == digest))

    def kept_hashes(self) -> set[str]:
        """Which code is kept."""
        with self._database.reading() as db:
            return set(db.scalars(select(CODE.c.hash)))

    def unneeded_code(self, gone: Collection[str], older_than: timedelta) -> dict[str, int]:
        """Kept code, with its bytes, that none ran but the runs that are `gone`.

        Code that was kept only just now is needed: its run may not be recorded yet.
        """
        with self._database.reading() as db:
            before = clock(db) - max(older_than, JUST_KEPT)
            kept = db.execute(select(CODE.c.hash, func.length(CODE.c.files)).where(CODE.c.kept < before))
            sizes = {row[0]: row[1] for row in kept}
            ran = db.execute(select(STARTS.c.run, STARTS.c.code)).all()
        needed = {row.code.get("hash") for row in ran if row.run not in gone}
        return {digest: size for digest, size in sizes.items() if digest not in needed}

    def drop_code(self, digests: Collection[str]) -> None:
        with self._database.changing() as db:
            db.execute(delete(CODE).where(CODE.c.hash.in_(digests)))

    def _changing(self, by: Claim | None) -> AbstractContextManager[Connection]:
        return self._database.changing() if by is None else by.writing()

    def record_speed(self, speed: Speed) -> None:
        """Keep how fast a job of a run went."""
        with self._database.changing() as db:
            row = upsert(db)(SPEEDS).values(**asdict(speed), at=clock(db))
            changed = {one.name: row.excluded[one.name] for one in SPEEDS.c if not one.primary_key}
            db.execute(row.on_conflict_do_update(index_elements=["run", "job"], set_=changed))

    def speeds(self, app: str, job: str, mode: str, state: str) -> list[Speed]:
        """What was measured of such jobs, newest first."""
        told = {"app": app, "job": job, "mode": mode, "state": state}
        same = select(SPEEDS).filter_by(**told).order_by(SPEEDS.c.at.desc(), SPEEDS.c.run.desc())
        with self._database.reading() as db:
            return [Speed(*(getattr(row, field.name) for field in fields(Speed))) for row in db.execute(same)]


def _of_run(run: str, before: datetime | None) -> ColumnElement[bool]:
    """Which micro-batches of the run go: all, or those before the last that was committed before then."""
    if before is None:
        return BATCHES.c.run == run
    same = BATCHES.alias()
    last = select(func.max(same.c.batch)).where(
        same.c.run == BATCHES.c.run, same.c.query == BATCHES.c.query, same.c.committed < before
    )
    return (BATCHES.c.run == run) & (BATCHES.c.batch < last.scalar_subquery())


def _with_holder(run: Run, lease: Lease | None) -> Run:
    if not run.state.going:
        return run
    return replace(run, state=State.DIED) if lease is None else replace(run, pid=lease.pid, host=lease.host)
