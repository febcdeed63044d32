"""Keeping the versions of a table that does not keep them itself.

    kept = keep(spark, config, "prices", claim)

Each look compares the table with the versions that are kept and appends what changed, in one commit. A change counts
from `lead` after it was seen: it is in the table of versions before any event of that time can be read, so that a live
run and every replay give the same event the same version. An Iceberg table that is looked at for the first time brings
the versions that its own snapshots still show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rekappa.config.lookups import IcebergLookup, KeptTable, PostgresLookup
from rekappa.config.model import AppConfig
from rekappa.errors import ConfigError, SinkError, SourceError
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.past import rows_at, was_current
from rekappa.lookup import Lookup
from rekappa.lookups.changes import GONE
from rekappa.lookups.versions import SINCE, kept_table
from rekappa.sinks.postgres import Postgres
from rekappa.sinks.service import fetch
from rekappa.spark.names import quoted
from rekappa.timeline import EPOCH, TICK, instant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HERE, _THERE = "__here", "__there"


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at a lookup's table found: how many keys changed, and since when that counts.

    `late` says that the commit took longer than the lead: events read in between may have missed it.
    """

    lookup: str
    table: str
    changed: int
    since: datetime | None = None
    late: bool = False


def kept_lookups(config: AppConfig, only: str | None = None) -> dict[str, KeptTable]:
    """The lookups whose versions are kept here; refuses a name that is none of them."""
    found = {
        name: one
        for name, one in config.lookups.items()
        if isinstance(one, KeptTable) and not (isinstance(one, IcebergLookup) and one.valid_from is not None)
    }
    if only is not None and only not in found:
        known = ", ".join(found) or "none: every lookup of the app holds its versions itself"
        raise ConfigError(f"Cannot keep versions of lookup {only!r}", hint=f"Those that are kept: {known}.")
    return found if only is None else {only: found[only]}


def keep(
    spark: SparkSession,
    config: AppConfig,
    name: str,
    *,
    since: datetime | None = None,
    check: Callable[[], None] = lambda: None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Look:
    """Append what has changed since the last look. `check` is called before each commit and may refuse it.

    `since` says when the rows of a first look began to hold, for a table whose own past can't be seen.
    """
    lookup = config.lookups[name]
    assert isinstance(lookup, KeptTable)
    table = kept_table(config, name, lookup)
    changed = 0
    if not spark.catalog.tableExists(table):
        for moment, rows in _past(spark, name, lookup) if since is None else ():
            _prepare(spark, table, name, rows)
            check()
            changed += _append(spark, table, name, lookup, rows, moment)
    rows = _now(spark, name, lookup)
    _prepare(spark, table, name, rows)
    first = spark.table(table).isEmpty()
    moment = since if since is not None and first else _next(spark, table, now() + lookup.lead)
    check()
    found = _append(spark, table, name, lookup, rows, moment)
    late = found > 0 and not first and now() > moment
    return Look(name, table, changed + found, moment if found else None, late)


def _now(spark: SparkSession, name: str, lookup: KeptTable) -> DataFrame:
    from pyspark.errors import AnalysisException

    if isinstance(lookup, PostgresLookup):
        password = lookup.password.get_secret_value() if lookup.password else None
        service = Postgres(
            lookup.host, lookup.port, lookup.database, lookup.table, lookup.key, user=lookup.user, password=password
        )
        try:
            return fetch(spark, service, None)
        except SinkError as error:
            raise SourceError(f"Cannot look at lookup {name!r}: {error.message}", hint=error.hint) from None
    assert isinstance(lookup, IcebergLookup)
    try:
        return spark.table(lookup.table)
    except AnalysisException:
        raise SourceError(
            f"Cannot look at lookup {name!r}: the table {lookup.table} does not exist",
            hint=f"Check lookups.{name}.table.",
        ) from None


def _past(spark: SparkSession, name: str, lookup: KeptTable) -> Iterator[tuple[datetime, DataFrame]]:
    """What an Iceberg table was, and since when, as far back as its snapshots are still there, the oldest first."""
    if not isinstance(lookup, IcebergLookup):
        return
    _now(spark, name, lookup)
    table = load_table(spark, lookup.table)
    columns = [quoted(column) for column in spark.table(lookup.table).columns]
    newest, before = EPOCH, None
    for moment, number in was_current(table):
        snapshot = table.snapshot(number)
        # A rewrite of files changes no row.
        if snapshot.operation() != "replace" or snapshot.parentId() != before:
            # Writers' clocks may differ: what came later holds from later on.
            newest = max(moment, newest + TICK)
            yield newest, rows_at(spark, lookup.table, number).select(*columns)
        before = number


def _next(spark: SparkSession, table: str, wanted: datetime) -> datetime:
    """A moment after every one in the table, whatever the clock says."""
    from pyspark.sql import functions as F

    newest = spark.table(table).agg(F.unix_micros(F.max(SINCE))).collect()[0][0]
    return wanted if newest is None else max(wanted, instant(int(newest) + 1))


def _prepare(spark: SparkSession, table: str, name: str, rows: DataFrame) -> None:
    """The table of versions, made if it is not there; refuses rows whose columns it does not have."""
    wanted = {field.name: field.dataType.simpleString() for field in rows.schema}
    if not spark.catalog.tableExists(table):
        namespace = table.rsplit(".", 1)[0]
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {'.'.join(map(quoted, namespace.split('.')))}")
        columns = [f"{quoted(column)} {kind}" for column, kind in wanted.items()]
        columns += [f"{SINCE} TIMESTAMP", f"{GONE} BOOLEAN"]
        spark.sql(f"CREATE TABLE {'.'.join(map(quoted, table.split('.')))} ({', '.join(columns)}) USING iceberg")
        return
    have = {field.name: field.dataType.simpleString() for field in spark.table(table).schema}
    have = {column: kind for column, kind in have.items() if column not in (SINCE, GONE)}
    for column in sorted(wanted.keys() | have.keys()):
        if wanted.get(column) != have.get(column):
            raise SourceError(
                f"Cannot keep lookup {name!r}: column {column!r} is {wanted.get(column) or 'gone'} in its table and "
                f"{have.get(column) or 'not there'} in {table}",
                hint=f"ALTER TABLE {table} so that both have the same columns; versions that lack one have null.",
            )


def _append(spark: SparkSession, table: str, name: str, lookup: KeptTable, rows: DataFrame, moment: datetime) -> int:
    """One commit with what differs from the versions that hold now; none if nothing does."""
    from pyspark.sql import functions as F

    _require_keys(name, lookup, rows)
    values = [column for column in rows.columns if column not in lookup.key]
    holding = Lookup.of(spark.table(table), lookup.key, SINCE, deleted=GONE).held_now()
    mine = rows.select("*", F.lit(True).alias(_HERE)).alias("n")
    known = holding.select(*map(quoted, rows.columns), F.lit(True).alias(_THERE)).alias("o")
    same = F.lit(True)
    for column in lookup.key:
        same = same & (F.col(f"n.{quoted(column)}") == F.col(f"o.{quoted(column)}"))
    differs = F.col(f"n.{_HERE}").isNull() | F.col(f"o.{_THERE}").isNull()
    for column in values:
        differs = differs | ~F.col(f"n.{quoted(column)}").eqNullSafe(F.col(f"o.{quoted(column)}"))
    made = mine.join(known, same, "full_outer").where(differs)
    since = F.timestamp_micros(F.lit((moment - EPOCH) // TICK))
    changes = made.select(
        *(
            F.coalesce(F.col(f"n.{quoted(column)}"), F.col(f"o.{quoted(column)}")).alias(column)
            if column in lookup.key
            else F.col(f"n.{quoted(column)}").alias(column)
            for column in rows.columns
        ),
        since.alias(SINCE),
        F.col(f"n.{_HERE}").isNull().alias(GONE),
    ).persist()
    try:
        count = changes.count()
        if count:
            changes.writeTo(table).append()
        return count
    finally:
        changes.unpersist()


def _require_keys(name: str, lookup: KeptTable, rows: DataFrame) -> None:
    """A key tells one row, and is there in every row."""
    from pyspark.sql import functions as F

    if any("map<" in field.dataType.simpleString() for field in rows.schema):
        raise SourceError(
            f"Cannot keep lookup {name!r}: a column of it is a map, and maps can't be compared",
            hint="Let a view turn it into a struct or text.",
        )
    missing = [column for column in lookup.key if column not in rows.columns]
    if missing:
        raise SourceError(
            f"Cannot keep lookup {name!r}: its table has no column {missing[0]!r}",
            hint=f"It has: {', '.join(rows.columns)}. lookups.{name}.key names them.",
        )
    empty = F.lit(False)
    for column in lookup.key:
        empty = empty | F.col(quoted(column)).isNull()
    groups = rows.groupBy(*map(quoted, lookup.key)).agg(F.count("*").alias(_HERE))
    bad = groups.where(empty | (F.col(_HERE) > 1)).limit(1).collect()
    if bad:
        told = ", ".join(f"{column}={bad[0][at]}" for at, column in enumerate(lookup.key))
        raise SourceError(
            f"Cannot keep lookup {name!r}: its table has {bad[0][_HERE]} rows with {told}",
            hint="A key must be there and tell one row: remove the others, or name more columns as key.",
        )
