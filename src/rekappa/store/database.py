"""The run store's database: transactions that look, transactions that change, and the tables' version."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError, ProgrammingError

from rekappa.errors import ConfigError, RunError, StoreError
from rekappa.store.address import Address
from rekappa.store.dialects import BUSY, dialect_of
from rekappa.store.migrations import VERSION, bring_up_to_date, stranger

_AGAIN = 0.25
_CONNECTS = "Is it up? Check host, port, database, user, password and parameters of its address."
_NO_RIGHT = "InsufficientPrivilege"
"""What psycopg calls it: its errors are classes of a package that need not be installed."""
_OWN = "A run store has a schema (?schema=NAME), or a SQLite file, of its own. Name another, or bring back its backup."
_RIGHTS = "Its user must own the schema, or be allowed to make one and to read and write its tables: docs/store.md."
_WAITS = (
    f"Is it there, and has it room? A change waits for others for {BUSY:.0f} seconds at most; "
    "a process that is suspended (Ctrl-Z) in the midst of one holds up all of them."
)


class Database:
    """Opens connections; the first of a new version brings the tables up to it.

    `create` says whether an empty store is made, or refused.
    """

    def __init__(self, address: Address, *, create: bool = True) -> None:
        self.address = address
        if not create and address.file is not None and not address.file.is_file():
            raise RunError(f"Cannot find any run: there is no run store {address}")
        self._dialect, self._patience = dialect_of(address), 0.0
        with self._reported():
            self._dialect.prepare()
        with self.reading() as db:
            version = self._version(db)
        if version == 0 and not create:
            raise RunError(f"Cannot find any run: nothing has run yet with run store {address}")
        if version > VERSION:
            raise RunError(
                f"Cannot open run store {address}: it has version {version}, this rekappa knows {VERSION}",
                hint="Upgrade rekappa.",
            )
        if version < VERSION:
            with self.changing() as db:
                # Another process may have done it meanwhile.
                self._dialect.alone(db)
                bring_up_to_date(db, self._dialect, self._version(db))
        self._patience = self._dialect.patience

    def _version(self, db: Connection) -> int:
        """The version of the tables; refuses those that are somebody else's."""
        version = self._dialect.version(db)
        why = stranger(version, self._dialect.tables(db))
        if why is not None and version <= VERSION:
            raise ConfigError(f"Cannot use run store {self.address}: {why}", hint=_OWN)
        return version

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection that sees one state of the store, that of its first statement."""
        with self._connected(self._dialect.looks) as db:
            yield db

    @contextmanager
    def changing(self) -> Iterator[Connection]:
        """One transaction, done whole or not at all.

        On SQLite nobody else changes anything meanwhile. On PostgreSQL that goes for the rows that it has locked or
        changed: whoever decides by what a row says locks it first.
        """
        with self._connected(self._dialect.changes) as db, db.begin():
            yield db

    @contextmanager
    def deciding(self) -> Iterator[Connection]:
        """The same, one such transaction at a time: for who decides by what is *not* there, which nobody can lock."""
        with self.changing() as db:
            self._dialect.alone(db)
            yield db

    @contextmanager
    def _connected(self, options: Mapping[str, Any]) -> Iterator[Connection]:
        with self._reported(), self._reached() as db:
            yield db.execution_options(**options)

    def _reached(self) -> Connection:
        """A connection; to a server that was there before, as soon as it is there again."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return self._dialect.engine.connect()
            except ProgrammingError as error:
                cause = " ".join(str(error.orig).split())
                raise ConfigError(f"Cannot use run store {self.address}: {cause}", hint=_CONNECTS) from None
            except OperationalError as error:
                if time.monotonic() >= deadline:
                    raise self._unusable(error, _CONNECTS) from error
                time.sleep(_AGAIN)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except (DataError, IntegrityError, ProgrammingError) as error:
            if type(error.orig).__name__ != _NO_RIGHT:
                raise
            cause = str(error.orig).splitlines()[0]
            raise ConfigError(f"Cannot use run store {self.address}: {cause}", hint=_RIGHTS) from None
        except DBAPIError as error:
            raise self._unusable(error, _WAITS) from error

    def _unusable(self, error: DBAPIError, hint: str) -> StoreError:
        return StoreError(f"Cannot use run store {self.address}: {' '.join(str(error.orig).split())}", hint=hint)
