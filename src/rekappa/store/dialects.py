"""What differs between SQLite and PostgreSQL: how to connect, how to be alone, where the version stands, the clock.

Everything else in this package is written once, in SQLAlchemy's expressions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    NullPool,
    Table,
    create_engine,
    event,
    func,
    insert,
    inspect,
    select,
    update,
)  # fmt: skip
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateSchema
from sqlalchemy.sql.functions import FunctionElement

from rekappa.errors import SetupError
from rekappa.store.address import Address
from rekappa.store.tables import Instant

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

BUSY = 30.0
"""Seconds to wait for another process's transaction, and for a server that is started anew; each takes less."""
SUSPENDED = 20
"""Seconds after which PostgreSQL ends a transaction whose process says nothing: its locks hold nobody up for good."""
_CONNECTS = {"connect_timeout": 10, "application_name": "rekappa", "prepare_threshold": None}
"""libpq's parameters, unless the address gives them; a pooler between us and the server knows no prepared statement."""
_BEGIN = "rekappa_begin"
"""The option of a connection that says how SQLite begins its transaction."""


class Dialect(Protocol):
    """One kind of store."""

    engine: Engine
    patience: float
    """Seconds to try to connect again to a store that was there before."""
    looks: Mapping[str, object]
    """Options of a connection whose transaction sees one state of the store."""
    changes: Mapping[str, object]
    """Options of one whose transaction writes."""

    def prepare(self) -> None:
        """Called before the first connection is asked for a version."""

    def version(self, db: Connection) -> int:
        """The version of the tables; 0 if none is said, -1 if what says it can't be ours."""

    def tables(self, db: Connection) -> set[str]:
        """The names of all tables where the store is, or is to be."""

    def alone(self, db: Connection) -> None:
        """Let no other process make or change tables until the transaction ends."""

    def set_version(self, db: Connection, number: int) -> None:
        """Write down the version; the first time, before the first table is made."""


class Sqlite:
    """A file. A transaction that writes is alone from its beginning: there is one writer at a time."""

    patience = 0.0
    looks: Mapping[str, object] = {_BEGIN: "BEGIN"}
    changes: Mapping[str, object] = {_BEGIN: "BEGIN IMMEDIATE"}

    def __init__(self, address: Address) -> None:
        self._path = address.file
        self.engine = create_engine(
            address.url,
            poolclass=NullPool,
            connect_args={"timeout": BUSY, "isolation_level": None},
            hide_parameters=True,
        )

        @event.listens_for(self.engine, "begin")
        def begin(db: Connection) -> None:
            if how := db.get_execution_options().get(_BEGIN):
                db.exec_driver_sql(how)

    def prepare(self) -> None:
        """Readers beside one writer. Written into the file once; two processes that do it at once get no queue."""
        assert self._path is not None
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # It holds logins and code. What SQLite puts beside it has the same mode; a file that is there keeps its own.
        with suppress(OSError):
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        deadline = time.monotonic() + BUSY
        with self.engine.connect() as db:
            while True:
                try:
                    db.exec_driver_sql("PRAGMA journal_mode = WAL")
                    return
                except OperationalError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)

    def version(self, db: Connection) -> int:
        return max(-1, int(db.exec_driver_sql("PRAGMA user_version").scalar_one()))

    def tables(self, db: Connection) -> set[str]:
        return set(inspect(db).get_table_names())

    def alone(self, db: Connection) -> None:
        pass

    def set_version(self, db: Connection, number: int) -> None:
        db.exec_driver_sql(f"PRAGMA user_version = {number}")


class PostgresDialect:
    """A schema of a database. Rows are locked one by one, so that processes wait only for those they share."""

    patience = BUSY
    looks: Mapping[str, object] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    changes: Mapping[str, object] = {}
    _version = Table("version", MetaData(), Column("number", Integer, nullable=False))

    def __init__(self, address: Address) -> None:
        if find_spec("psycopg") is None:
            raise SetupError(
                f"Cannot open run store {address}: the package psycopg is not installed",
                hint="pip install 'rekappa[postgres]'",
            )
        assert address.schema is not None
        self._schema = address.schema
        self.engine = create_engine(
            address.url,
            isolation_level="READ COMMITTED",
            pool_pre_ping=True,
            pool_size=2,
            max_overflow=-1,
            connect_args={name: value for name, value in _CONNECTS.items() if name not in address.url.query},
            execution_options={"schema_translate_map": {None: self._schema}},
            hide_parameters=True,
        )
        event.listen(self.engine, "connect", _bound_waiting)
        # A connection belongs to the process that opened it.
        os.register_at_fork(after_in_child=lambda: self.engine.dispose(close=False))

    def prepare(self) -> None:
        pass

    def version(self, db: Connection) -> int:
        if not inspect(db).has_table("version", schema=self._schema):
            return 0
        columns = [column["name"] for column in inspect(db).get_columns("version", schema=self._schema)]
        found = db.scalars(select(self._version.c.number)).all() if columns == ["number"] else []
        return found[0] if len(found) == 1 and isinstance(found[0], int) and found[0] > 0 else -1

    def tables(self, db: Connection) -> set[str]:
        return set(inspect(db).get_table_names(schema=self._schema))

    def alone(self, db: Connection) -> None:
        db.execute(select(func.pg_advisory_xact_lock(func.hashtext(f"rekappa {self._schema}"))))
        # For the steps of `migrations`, whose SQL names tables without their schema.
        quoted = self._schema.replace('"', '""')
        db.execute(select(func.set_config("search_path", f'"{quoted}"', True)))

    def set_version(self, db: Connection, number: int) -> None:
        if self.version(db) == 0:
            if not inspect(db).has_schema(self._schema):
                db.execute(CreateSchema(self._schema))
            self._version.create(db)
            db.execute(insert(self._version).values(number=number))
        db.execute(update(self._version).values(number=number))


def _bound_waiting(connection: Any, record: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = '{BUSY:.0f}s'")
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{SUSPENDED}s'")
    connection.commit()


@cache
def dialect_of(address: Address) -> Dialect:
    """One per address and process: connections to a server are used again."""
    return Sqlite(address) if address.schema is None else PostgresDialect(address)


def upsert(db: Connection) -> Callable[[Table], postgresql.Insert | sqlite.Insert]:
    """The INSERT that says what to do about a row that is there already."""
    # Each brings all its drivers along: only the one that is used.
    return import_module(f"sqlalchemy.dialects.{db.dialect.name}").insert  # type: ignore[no-any-return]


class _Now(FunctionElement[datetime]):
    type = Instant()
    inherit_cache = True


@compiles(_Now, "sqlite")
def _now_of_sqlite(element: _Now, compiler: Any, **words: Any) -> str:
    return "strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')"


@compiles(_Now, "postgresql")
def _now_of_postgresql(element: _Now, compiler: Any, **words: Any) -> str:
    return "clock_timestamp()"


def clock(db: Connection) -> datetime:
    """The database's time at this moment: the one clock of all machines that share the store."""
    return db.scalars(select(_Now())).one()
