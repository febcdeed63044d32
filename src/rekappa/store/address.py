"""Where the run store is: a file of the project folder, or the PostgreSQL of a team.

    export REKAPPA_STORE=postgresql://rekappa@db.example.org/rekappa

The environment comes first, then the file `store` of the project folder, which holds the same address; without
either it is the project's own SQLite file. Commands such as `rekappa runs` name no app, so it stands in no
rekappa.yaml. `?schema=NAME` chooses PostgreSQL's schema; every other parameter is libpq's own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import SQLAlchemyError

from rekappa.errors import ConfigError
from rekappa.home import Home

VARIABLE = "REKAPPA_STORE"
SCHEMA = "rekappa"
_BRACKET = re.compile(r"[\[\]]")
"""SQLAlchemy puts a schema's name in the place of another between such brackets."""
_POSTGRES = ("postgresql", "postgres", "postgresql+psycopg")


@dataclass(frozen=True, slots=True)
class Address:
    """An address that can be opened. Printed, it shows neither its password nor its parameters but for the schema."""

    url: URL
    schema: str | None = None

    @classmethod
    def of_file(cls, path: Path) -> Address:
        return cls(URL.create("sqlite", database=str(path.absolute())))

    @classmethod
    def parse(cls, text: str, told_by: str = VARIABLE) -> Address:
        """Read an address; a refusal says who gave it, never what it was: it may hold a password."""
        try:
            url = make_url(text)
        except (SQLAlchemyError, ValueError):
            raise ConfigError(f"Cannot use the run store of {told_by}: it is no address", hint=_LIKE) from None
        if "@" in f"{url.host}{url.database}" and url.drivername in _POSTGRES:
            # What follows the first @ of a password would be shown as the host.
            raise ConfigError(
                f"Cannot use the run store of {told_by}: it has several @", hint="Write an @ in a password as %40."
            )
        if url.drivername == "sqlite" and url.database and not url.query:
            return cls.of_file(Path(url.database))
        if url.drivername not in _POSTGRES or not url.database:
            raise ConfigError(f"Cannot use the run store of {told_by}: {_shown(url)}", hint=_LIKE)
        schema = url.query.get("schema", SCHEMA)
        if not isinstance(schema, str) or not schema:
            raise ConfigError(f"Cannot use the run store of {told_by}: it names no schema, or several", hint=_LIKE)
        if len(schema.encode()) > 63 or schema.startswith("pg_") or not schema.isprintable() or _BRACKET.search(schema):
            raise ConfigError(
                f"Cannot use the run store of {told_by}: {schema[:80]!r} can't be the name of a schema",
                hint="PostgreSQL takes at most 63 bytes, and none that begins with pg_; no [ ] and control characters.",
            )
        return cls(url.set(drivername="postgresql+psycopg").difference_update_query(["schema"]), schema)

    @classmethod
    def of(cls, home: Home, environ: Mapping[str, str] | None = None) -> Address:
        """The address of the project's run store."""
        told = (os.environ if environ is None else environ).get(VARIABLE, "").strip()
        if told:
            return cls.parse(told)
        try:
            written = home.store_address.read_text("utf-8").strip()
        except FileNotFoundError:
            return cls.of_file(home.store)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"Cannot read {home.store_address}: {error}") from None
        return cls.parse(written, str(home.store_address))

    @property
    def file(self) -> Path | None:
        """The SQLite file, if it is one."""
        return Path(self.url.database or "") if self.schema is None else None

    def __str__(self) -> str:
        if self.schema is None:
            return str(self.file)
        return _shown(self.url) + ("" if self.schema == SCHEMA else f"?schema={self.schema}")

    def __repr__(self) -> str:
        return f"Address({str(self)!r}, {self.schema!r})"


_LIKE = "Write it like postgresql://USER@HOST/DATABASE, or sqlite:////path/to/runs.db."


def _shown(url: URL) -> str:
    """Without the parameters: libpq takes a password there too."""
    bare = url.set(drivername=url.drivername.partition("+")[0], query={})
    return bare.render_as_string(hide_password=True)
