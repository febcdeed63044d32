"""The tables of the run store, as the newest version has them, typed alike on SQLite and PostgreSQL."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    TIMESTAMP,
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)  # fmt: skip
from sqlalchemy.types import TypeDecorator, TypeEngine

from rekappa.store.people import UserRole
from rekappa.store.record import Kind, State, Wish
from rekappa.store.task import TaskState


class Instant(TypeDecorator[datetime]):
    """A moment, always read back in UTC. SQLite has no type for it: there it is text that sorts by time."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(TIMESTAMP(timezone=True) if dialect.name == "postgresql" else Text())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        moment = value.astimezone(UTC)
        return moment if dialect.name == "postgresql" else moment.isoformat()

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return (value if isinstance(value, datetime) else datetime.fromisoformat(value)).astimezone(UTC)


class Json(TypeDecorator[Any]):
    """A document, kept as the text that it was: PostgreSQL's own JSON refuses NaN, and its JSONB sorts the keys."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(value, default=str)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


class Word(TypeDecorator[StrEnum]):
    """One word of a closed list."""

    impl = Text
    cache_ok = True

    def __init__(self, words: type[StrEnum]) -> None:
        super().__init__()
        self.words = words

    def process_bind_param(self, value: StrEnum | str | None, dialect: Dialect) -> str | None:
        return None if value is None else self.words(value).value

    def process_result_value(self, value: Any, dialect: Dialect) -> StrEnum | None:
        return None if value is None else self.words(value)


class FreeText(TypeDecorator[str]):
    """Text from anywhere: PostgreSQL takes no zero byte."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else value.replace("\0", "")


METADATA = MetaData()

RUNS = Table(
    "runs",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("app", Text, nullable=False),
    Column("kind", Word(Kind), nullable=False),
    Column("folder", Text, nullable=False),
    Column("state", Word(State), nullable=False),
    Column("created", Instant, nullable=False),
    Column("started", Instant),
    Column("ended", Instant),
    Column("spec", Json, nullable=False),
    Column("progress", Json, nullable=False),
    Column("validation", Json),
    Column("publication", Json),
    Column("error", FreeText),
    Column("logs", Json, nullable=False, server_default="[]"),
    Column("wish", Word(Wish), nullable=False, server_default=Wish.GO.value),
    Index("runs_by_time", "created"),
)

BATCHES = Table(
    "batches",
    METADATA,
    Column("run", Text, primary_key=True),
    Column("query", Text, primary_key=True),
    Column("batch", BigInteger, primary_key=True, autoincrement=False),
    Column("positions", Json, nullable=False),
    Column("watermark", Instant),
    Column("committed", Instant, nullable=False),
    sqlite_with_rowid=False,
)

STARTS = Table(
    "starts",
    METADATA,
    Column("run", Text, primary_key=True),
    Column("query", Text, primary_key=True),
    Column("batch", BigInteger, primary_key=True, autoincrement=False),
    Column("code", Json, nullable=False),
    Column("target", Text, nullable=False),
    Column("at", Instant, nullable=False),
    sqlite_with_rowid=False,
)

LEASES = Table(
    "leases",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("token", BigInteger, nullable=False),
    Column("run", Text),
    Column("host", Text),
    Column("machine", Text),
    Column("pid", Integer),
    Column("process", Text),
    Column("heartbeat", Instant),
    Column("expires", Instant),
    sqlite_with_rowid=False,
)

CODE = Table(
    "code",
    METADATA,
    Column("hash", Text, primary_key=True),
    Column("files", LargeBinary, nullable=False),
    Column("kept", Instant, nullable=False),
)

SPEEDS = Table(
    "speeds",
    METADATA,
    Column("run", Text, primary_key=True),
    Column("job", Text, primary_key=True),
    Column("app", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("at", Instant, nullable=False),
)

TASKS = Table(
    "tasks",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("app", Text),
    Column("run", Text),
    Column("words", Json, nullable=False),
    Column("kept", Boolean, nullable=False),
    Column("who", Text, nullable=False),
    Column("face", Text, nullable=False),
    Column("folder", Text, nullable=False),
    Column("state", Word(TaskState), nullable=False),
    Column("created", Instant, nullable=False),
    Column("started", Instant),
    Column("ended", Instant),
    Column("restarts", Integer, nullable=False),
    Column("next_start", Instant),
    Column("exit_code", Integer),
    Column("error", FreeText),
    Column("host", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("pid", Integer),
    Column("process", Text),
    Column("command_pid", Integer),
    Column("command_process", Text),
    Index("tasks_by_time", "created"),
)

AUDIT = Table(
    "audit",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("at", Instant, nullable=False),
    Column("who", FreeText, nullable=False),
    Column("face", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("app", FreeText),
    Column("run", FreeText),
    Column("details", Json, nullable=False),
    Index("audit_by_time", "at"),
)

USERS = Table(
    "users",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("role", Word(UserRole), nullable=False),
    Column("secret", Text, nullable=False),
    Column("created", Instant, nullable=False),
)

SESSIONS = Table(
    "sessions",
    METADATA,
    Column("digest", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("role", Word(UserRole), nullable=False),
    Column("form_key", Text, nullable=False),
    Column("expires", Instant, nullable=False),
)

OVERRIDES = Table(
    "overrides",
    METADATA,
    Column("app", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("at", Instant, nullable=False),
)

SAMPLES = Table(
    "samples",
    METADATA,
    Column("run", Text, primary_key=True),
    Column("at", Instant, primary_key=True),
    Column("progress", Json, nullable=False),
)
