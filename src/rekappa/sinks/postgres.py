"""PostgreSQL: upsert by key, one transaction per task.

Rows go by COPY into a temporary table and from there, in the order of the key, into the table: fast, and two
writers that meet on the same rows wait for each other instead of deadlocking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rekappa.errors import SinkError
from rekappa.sinks.changes import Changes, Step, TypeRules, compare, widening
from rekappa.sinks.clients import client
from rekappa.sinks.service import Service, as_json, schema_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from rekappa.timeline import Window

_TYPES = {
    "tinyint": "smallint", "smallint": "smallint", "int": "integer", "bigint": "bigint", "float": "real",
    "double": "double precision", "boolean": "boolean", "string": "text", "binary": "bytea", "date": "date",
    "timestamp": "timestamp with time zone", "timestamp_ntz": "timestamp without time zone",
}  # fmt: skip
_WIDER = widening(("smallint", "integer", "bigint"), ("real", "double precision"))
_RULES = TypeRules(
    takes=lambda rows, column: (rows, column) in (("jsonb", "json"), ("jsonb", "text")) or _WIDER(rows, column),
    widens=_WIDER,
    instead="smallint and integer, real, and numeric before the point can be widened; for any other type ALTER TABLE "
    "… TYPE … USING yourself, or give the column a new name",
    whole=False,
    folded=False,
)
_BACK = {theirs: ours for ours, theirs in _TYPES.items() if ours != "tinyint"} | {"numeric": "decimal(38,18)"}


def column_type(spark_type: str) -> str:
    """The PostgreSQL type for one of Spark's; nested types are kept as jsonb."""
    if spark_type.startswith("decimal"):
        return spark_type.replace("decimal", "numeric")
    return _TYPES.get(spark_type, "jsonb")


def spark_type(column: str) -> str:
    """The other way round; what has no counterpart is read as text."""
    if column.startswith("numeric("):
        return column.replace("numeric", "decimal")
    return _BACK.get(column, "string")


@dataclass(frozen=True, slots=True)
class Postgres(Service):
    host: str
    port: int
    database: str
    table: str
    key: tuple[str, ...]
    event_time: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    version: str | None = None

    def _connect(self) -> Any:
        psycopg = client("psycopg", "postgres")
        try:
            return psycopg.connect(
                host=self.host,
                port=self.port,
                dbname=self.database,
                user=self.user,
                password=self.password,
                connect_timeout=10,
                application_name="rekappa",
                options="-c timezone=UTC",
            )
        except psycopg.OperationalError as error:
            raise SinkError(
                f"Cannot reach PostgreSQL at {self.host}:{self.port}/{self.database}: {str(error).splitlines()[0]}",
                hint="Check host, port, database and user of the sink, and that the server is up.",
            ) from None

    def _name(self) -> Any:
        return client("psycopg.sql", "postgres").Identifier(*self.table.split("."))

    def _columns(self, connection: Any) -> dict[str, str]:
        """The table's columns with their types; empty when there is no such table."""
        found = connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [self._name().as_string(connection)],
        )
        return dict(found.fetchall())

    def prepare(self, schema: StructType) -> None:
        sql = client("psycopg.sql", "postgres")
        wanted = {one.name: column_type(one.dataType.simpleString()) for one in schema}
        with self._connect() as connection:
            columns = self._columns(connection)
            if not columns:
                parts = [sql.SQL("{} " + kind).format(sql.Identifier(name)) for name, kind in wanted.items()]
                parts.append(sql.SQL("PRIMARY KEY ({})").format(self._key_list(sql)))
                table = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(self._name(), sql.SQL(", ").join(parts))
                connection.execute(table)
                return
            self._refuse_without_unique(connection)

    def changes(self, schema: StructType) -> Changes:
        with self._connect() as connection:
            columns = self._columns(connection)
        wanted = {one.name: column_type(one.dataType.simpleString()) for one in schema}
        where = f"PostgreSQL table {self.table}"
        return compare(where, wanted, columns, _RULES) if columns else Changes(where)

    def evolve(self, steps: Sequence[Step]) -> None:
        """All steps in one transaction. Widening rewrites the table, which others wait for."""
        sql = client("psycopg.sql", "postgres")
        add, widen = "ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} ", "ALTER TABLE {} ALTER COLUMN {} TYPE "
        with self._connect() as connection:
            for step in steps:
                words = (add if step.was is None else widen) + step.kind
                connection.execute(sql.SQL(words).format(self._name(), sql.Identifier(step.column)))

    def _refuse_without_unique(self, connection: Any) -> None:
        indexes = connection.execute(
            "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a "
            "ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) WHERE i.indrelid = to_regclass(%s) "
            "AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL GROUP BY i.indexrelid",
            [self._name().as_string(connection)],
        ).fetchall()
        if not any(set(names) == set(self.key) for (names,) in indexes):
            key = ", ".join(self.key)
            raise SinkError(
                f"Cannot upsert into PostgreSQL table {self.table}: no unique constraint on ({key})",
                hint=f"ALTER TABLE {self.table} ADD UNIQUE ({key})",
            )

    def _key_list(self, sql: Any) -> Any:
        return sql.SQL(", ").join(sql.Identifier(column) for column in self.key)

    def schema(self) -> StructType:
        with self._connect() as connection:
            columns = self._columns(connection)
        if not columns:
            raise SinkError(f"Cannot read PostgreSQL table {self.table}: it does not exist in {self.database}")
        return schema_of({name: spark_type(kind) for name, kind in columns.items()})

    def upsert(self, batches: Iterable[Any]) -> int:
        return self._through_temporary(batches, self._insertion)

    def advance(self, batches: Iterable[Any]) -> int:
        return self._through_temporary(batches, self._advance)

    def delete(self, batches: Iterable[Any]) -> int:
        return self._through_temporary(batches, self._removal)

    def _through_temporary(self, batches: Iterable[Any], made: Callable[[Any, list[str]], Any]) -> int:
        """Copy the rows aside, then run the statement that `made` answers for their columns."""
        sql = client("psycopg.sql", "postgres")
        done = 0
        connection: Any = None
        try:
            for batch in batches:
                if not batch.num_rows:
                    continue
                names = batch.schema.names
                connection = connection or self._connect()
                self._copied(connection, batch)
                done += batch.num_rows
            if connection is not None:
                connection.execute(made(sql, names))
                connection.commit()
            return done
        finally:
            if connection is not None:
                connection.close()

    def _insertion(self, sql: Any, names: list[str]) -> Any:
        rest = [name for name in names if name not in self.key]
        action = sql.SQL("DO NOTHING")
        if rest:
            pairs = (sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in rest)
            action = sql.SQL("DO UPDATE SET {}").format(sql.SQL(", ").join(pairs))
        listed = sql.SQL(", ").join(sql.Identifier(name) for name in names)
        return sql.SQL(
            "INSERT INTO {table} AS t ({listed}) SELECT {listed} FROM rekappa_rows ORDER BY {key} "
            "ON CONFLICT ({key}) {action}"
        ).format(table=self._name(), listed=listed, key=self._key_list(sql), action=action)

    def _advance(self, sql: Any, names: list[str]) -> Any:
        newer = sql.SQL(" WHERE {held} IS NULL OR EXCLUDED.{version} >= {held}").format(
            held=sql.SQL("t.{}").format(sql.Identifier(self.version)), version=sql.Identifier(self.version)
        )
        return self._insertion(sql, names) + newer

    def _removal(self, sql: Any, names: list[str]) -> Any:
        same = (sql.SQL("t.{0} = s.{0}").format(sql.Identifier(name)) for name in self.key)
        return sql.SQL("DELETE FROM {} t USING rekappa_rows s WHERE {}").format(
            self._name(), sql.SQL(" AND ").join(same)
        )

    def parts(self, wanted: int) -> int:
        return wanted

    def read(self, part: int, parts: int, window: Window | None) -> Iterator[dict[str, Any]]:
        """Split by a hash of the key, so that a row that is updated meanwhile is still read once."""
        sql = client("psycopg.sql", "postgres")
        rows = client("psycopg.rows", "postgres")
        where = sql.SQL("mod(abs(hashtext(ROW({})::text)::bigint), {}) = {}").format(
            self._key_list(sql), sql.Literal(parts), sql.Literal(part)
        )
        if window is not None and self.event_time:
            where += sql.SQL(" AND {0} >= {1} AND {0} < {2}").format(
                sql.Identifier(self.event_time), sql.Literal(window.start), sql.Literal(window.end)
            )
        with self._connect() as connection:
            columns = self._selected(connection)
            with connection.cursor("rekappa_read", row_factory=rows.dict_row) as cursor:
                cursor.itersize = 4096
                cursor.execute(sql.SQL("SELECT {} FROM {} WHERE {}").format(columns, self._name(), where))
                yield from cursor

    def look_up(self, batches: Iterable[Any]) -> Iterator[dict[str, Any]]:
        sql = client("psycopg.sql", "postgres")
        rows = client("psycopg.rows", "postgres")
        query = sql.SQL("SELECT {} FROM {} WHERE ({}) IN (SELECT {} FROM rekappa_rows)")
        with ExitStack() as stack:
            connection: Any = None
            for keys in batches:
                connection = connection or stack.enter_context(self._connect())
                self._copied(connection, keys)
                # Without statistics of the keys the server may prefer to read the whole table.
                connection.execute("ANALYZE rekappa_rows")
                listed = sql.SQL(", ").join(sql.Identifier(name) for name in keys.schema.names)
                with connection.cursor(row_factory=rows.dict_row) as cursor:
                    columns = self._selected(connection)
                    found = cursor.execute(query.format(columns, self._name(), listed, listed)).fetchall()
                connection.commit()
                yield from found

    def _selected(self, connection: Any) -> Any:
        """The columns to read; a type that Spark has no counterpart for as text."""
        sql = client("psycopg.sql", "postgres")
        kinds = self._columns(connection)
        texts = [name for name, kind in kinds.items() if spark_type(kind) == "string" and kind != "text"]
        return sql.SQL(", ").join(
            sql.SQL("{0}::text AS {0}" if name in texts else "{}").format(sql.Identifier(name)) for name in kinds
        )

    def _copied(self, connection: Any, batch: Any) -> None:
        """Add a batch's rows to the transaction's table `rekappa_rows`."""
        sql = client("psycopg.sql", "postgres")
        listed = sql.SQL(", ").join(sql.Identifier(name) for name in batch.schema.names)
        connection.execute(
            sql.SQL(
                "CREATE TEMP TABLE IF NOT EXISTS rekappa_rows ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA"
            ).format(listed, self._name())
        )
        with connection.cursor().copy(sql.SQL("COPY rekappa_rows ({}) FROM STDIN").format(listed)) as copy:
            for row in _rows(batch):
                copy.write_row(row)


def _rows(batch: Any) -> Iterator[tuple[Any, ...]]:
    """An Arrow batch as tuples; nested values as JSON."""
    import pyarrow as pa

    columns = []
    for column, kind in zip(batch.columns, batch.schema.types, strict=True):
        values = column.to_pylist()
        columns.append([as_json(value) for value in values] if pa.types.is_nested(kind) else values)
    return zip(*columns, strict=True)
