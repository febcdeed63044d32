"""Cassandra: upsert by primary key, with prepared statements and a bounded number of them in flight.

Cassandra keeps timestamps to the millisecond, and no transactions: a batch that was cut short is completed by its
retry. A null overwrites what was there, as an upsert should.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rekappa.errors import SinkError
from rekappa.sinks.changes import Changes, Step, TypeRules, compare, never, widening
from rekappa.sinks.clients import client
from rekappa.sinks.service import Service, as_json, schema_of
from rekappa.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from rekappa.timeline import Window

IN_FLIGHT = 64
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_TYPES = {
    "tinyint": "tinyint", "smallint": "smallint", "int": "int", "bigint": "bigint", "float": "float",
    "double": "double", "boolean": "boolean", "string": "text", "binary": "blob", "date": "date",
    "timestamp": "timestamp",
}  # fmt: skip
_RULES = TypeRules(
    takes=widening(("tinyint", "smallint", "int", "bigint"), ("float", "double")),
    widens=never,
    instead="Cassandra alters no type: give the column a new name, or make a new table",
    whole=False,
    folded=False,
)
_BACK = {theirs: ours for ours, theirs in _TYPES.items()} | {"decimal": "decimal(38,18)", "varint": "decimal(38,0)"}
# Connecting costs a second and several threads: one session per worker process and address.
_sessions: dict[tuple[int, str], Any] = {}


def column_type(spark_type: str) -> str:
    """The CQL type for one of Spark's; nested types are kept as JSON text."""
    return "decimal" if spark_type.startswith("decimal") else _TYPES.get(spark_type, "text")


@dataclass(frozen=True, slots=True)
class Cassandra(Service):
    hosts: tuple[str, ...]
    port: int
    keyspace: str
    table: str
    key: tuple[str, ...]
    event_time: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def _session(self) -> Any:
        where = (os.getpid(), f"{self.user}@{','.join(self.hosts)}:{self.port}")
        if where not in _sessions:
            driver = client("cassandra.cluster", "cassandra")
            auth = client("cassandra.auth", "cassandra")
            policies = client("cassandra.policies", "cassandra")
            queries = client("cassandra.query", "cassandra")
            plain = auth.PlainTextAuthProvider(self.user, self.password) if self.user else None
            profile = driver.ExecutionProfile(
                load_balancing_policy=policies.TokenAwarePolicy(policies.RoundRobinPolicy()),
                request_timeout=30,
                # The default makes names of Python's out of those of columns.
                row_factory=queries.dict_factory,
            )
            cluster = driver.Cluster(
                list(self.hosts),
                port=self.port,
                auth_provider=plain,
                protocol_version=4,
                execution_profiles={driver.EXEC_PROFILE_DEFAULT: profile},
            )
            try:
                _sessions[where] = cluster.connect()
            except Exception as error:
                cluster.shutdown()
                raise SinkError(
                    f"Cannot reach Cassandra at {', '.join(self.hosts)}:{self.port}: {type(error).__name__}",
                    hint="Check hosts, port, user and password of the sink, and that the server is up.",
                ) from None
        return _sessions[where]

    def _described(self) -> Any:
        """The table's metadata, None when it does not exist. Refuses an unknown keyspace."""
        session = self._session()
        session.cluster.refresh_schema_metadata()
        keyspace = session.cluster.metadata.keyspaces.get(self.keyspace)
        if keyspace is None:
            raise SinkError(
                f"Cannot use Cassandra keyspace {self.keyspace!r}: it does not exist",
                hint="Create it with the replication you want: CREATE KEYSPACE … WITH replication = {…}",
            )
        return keyspace.tables.get(self.table)

    @property
    def _name(self) -> str:
        return f'"{self.keyspace}"."{self.table}"'

    def prepare(self, schema: StructType) -> None:
        wanted = {one.name: column_type(one.dataType.simpleString()) for one in schema}
        found = self._described()
        if found is None:
            listed = ", ".join(f'"{name}" {kind}' for name, kind in wanted.items())
            self._session().execute(
                f"CREATE TABLE IF NOT EXISTS {self._name} ({listed}, PRIMARY KEY (({_quoted(self.key)})))"
            )
            return
        primary = [column.name for column in found.primary_key]
        if set(primary) != set(self.key):
            raise SinkError(
                f"Cannot write to {self._where}: its primary key is ({', '.join(primary)}) and the sink's key "
                f"({', '.join(self.key)})",
                hint="A primary key can't be changed: change the sink's key, or name another table.",
            )

    @property
    def _where(self) -> str:
        return f"Cassandra table {self.keyspace}.{self.table}"

    def changes(self, schema: StructType) -> Changes:
        found = self._described()
        if found is None:
            return Changes(self._where)
        wanted = {one.name: column_type(one.dataType.simpleString()) for one in schema}
        return compare(self._where, wanted, {name: one.cql_type for name, one in found.columns.items()}, _RULES)

    def evolve(self, steps: Sequence[Step]) -> None:
        held = self._described().columns
        for step in steps:
            if step.column not in held:
                self._session().execute(f'ALTER TABLE {self._name} ADD "{step.column}" {step.kind}')

    def schema(self) -> StructType:
        found = self._described()
        if found is None:
            raise SinkError(f"Cannot read Cassandra table {self.keyspace}.{self.table}: it does not exist")
        return schema_of({name: _BACK.get(one.cql_type, "string") for name, one in found.columns.items()})

    def upsert(self, batches: Iterable[Any]) -> int:
        def statement(names: list[str]) -> str:
            return f"INSERT INTO {self._name} ({_quoted(names)}) VALUES ({', '.join('?' * len(names))})"

        return self._run(batches, statement)

    def delete(self, batches: Iterable[Any]) -> int:
        def statement(names: list[str]) -> str:
            return f"DELETE FROM {self._name} WHERE " + " AND ".join(f'"{name}" = ?' for name in names)

        return self._run(batches, statement)

    def _run(self, batches: Iterable[Any], statement: Callable[[list[str]], str]) -> int:
        concurrent = client("cassandra.concurrent", "cassandra")
        prepared: Any = None
        done = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            session = self._session()
            prepared = prepared or session.prepare(statement(batch.schema.names))
            prepared.is_idempotent = True
            concurrent.execute_concurrent_with_args(session, prepared, _values(batch), concurrency=IN_FLIGHT)
            done += batch.num_rows
        return done

    def parts(self, wanted: int) -> int:
        return max(wanted, 4)

    def read(self, part: int, parts: int, window: Window | None) -> Iterator[dict[str, Any]]:
        """One stretch of the token ring. The server picks the window's rows out of it, so only these travel."""
        session = self._session()
        partition_key = [column.name for column in self._described().partition_key]
        token = f"token({_quoted(partition_key)})"
        width = (_HIGHEST - _LOWEST) // parts
        low, high = _LOWEST + part * width, _HIGHEST if part == parts - 1 else _LOWEST + (part + 1) * width
        more = ">=" if part == 0 else ">"
        condition = f"{token} {more} ? AND {token} <= ?"
        values: list[Any] = [low, high]
        if window is not None and self.event_time:
            condition += f' AND "{self.event_time}" >= ? AND "{self.event_time}" < ? ALLOW FILTERING'
            values += [_floor(window.start), _ceiling(window.end)]
        query = session.prepare(f"SELECT * FROM {self._name} WHERE {condition}")
        for row in session.execute(query, values):
            yield {name: _plain(value) for name, value in row.items()}

    def look_up(self, batches: Iterable[Any]) -> Iterator[dict[str, Any]]:
        concurrent = client("cassandra.concurrent", "cassandra")
        query: Any = None
        for keys in batches:
            session = self._session()
            same = " AND ".join(f'"{name}" = ?' for name in keys.schema.names)
            query = query or session.prepare(f"SELECT * FROM {self._name} WHERE {same}")
            query.is_idempotent = True
            found = concurrent.execute_concurrent_with_args(session, query, _values(keys), concurrency=IN_FLIGHT)
            for _, rows in found:
                for row in rows:
                    yield {name: _plain(value) for name, value in row.items()}

    def as_stored(self, rows: DataFrame) -> DataFrame:
        """Timestamps to the millisecond; decimals, for which Cassandra declares no scale, at the widest."""
        from pyspark.sql import functions as F

        changed = {}
        for one in rows.schema:
            if one.dataType.typeName() == "timestamp":
                changed[one.name] = F.date_trunc("millisecond", F.col(quoted(one.name)))
            elif one.dataType.typeName() == "decimal":
                changed[one.name] = F.col(quoted(one.name)).cast(_BACK["decimal"])
        return rows.withColumns(changed) if changed else rows


def _floor(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def _ceiling(moment: datetime) -> datetime:
    return moment + timedelta(microseconds=-moment.microsecond % 1000)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _values(batch: Any) -> list[tuple[Any, ...]]:
    import pyarrow as pa

    columns = []
    for column, kind in zip(batch.columns, batch.schema.types, strict=True):
        values = column.to_pylist()
        columns.append([as_json(value) for value in values] if pa.types.is_nested(kind) else values)
    return list(zip(*columns, strict=True))


def _plain(value: Any) -> Any:
    """The driver's own types as Python's: its dates, and its timestamps, which come without a zone."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    return value.date() if type(value).__name__ == "Date" else value
