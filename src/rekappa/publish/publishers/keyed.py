"""Services that hold one row per key and no history: PostgreSQL, Cassandra, OpenSearch.

Publishing reads the rows at stake (those of the window, and those of the staged keys), copies what it is about to
replace into an Iceberg table in staging (one commit: it is there whole or not at all), then upserts the rows that
differ and deletes those of the window that the backfill did not make. A publish that was cut short looks again and
does the rest, unless somebody else has written to those rows meanwhile: the copy would not hold theirs. Undo brings the
copied rows back, except where somebody else has written since: such rows are kept and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from rekappa.errors import PublishError
from rekappa.publish.plan import Effect, PublishState, SinkPlan, counted
from rekappa.publish.publishers.contract import Begin, Part, copy_of, require_base
from rekappa.sinks.service import ServiceSink, fetch, send
from rekappa.spark.hashing import digest
from rekappa.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class KeyedPublisher:
    part: Part
    target: str
    sink: ServiceSink
    stays: str | None = None

    def state(self, recorded: PublishState) -> PublishState:
        return recorded

    def look(self, *, force: bool) -> tuple[Effect, str | None]:
        with self._compared() as compared:
            self._refuse_changes(compared)
            return _effect(compared), _base(compared)

    def publish(self, plan: SinkPlan, begin: Begin) -> Effect:
        with self._compared() as compared:
            effect = _effect(compared)
            require_base(plan, _base(compared))
            self._refuse_changes(compared)
            begin()
            saved = _wrapped(self._save(compared), "b", self.sink.key).drop("b")
            # Only what was saved may go: a row that came since then is not ours to delete.
            removed = compared.where("kind = 'removed'").join(saved, saved.columns, "left_semi")
            self._send(compared, "s", removed)
        return effect

    def undo(self, begin: Begin, *, force: bool) -> Effect:
        spark = self.part.spark
        saved = self.part.before(self.part.run)
        begin()
        if not self.part.copied(self.part.run):
            # Nothing was sent before the copy was whole.
            spark.sql(f"DROP TABLE IF EXISTS {saved.table} PURGE")
            return Effect()
        compared = self._traced(saved.read(spark), self._aligned()).persist()
        try:
            effect = _effect(compared)
            self._send(compared, "b", compared.where("kind = 'removed'"))
        finally:
            compared.unpersist()
        # The next publish of this run must look at production anew.
        spark.sql(f"DROP TABLE {saved.table} PURGE")
        return effect

    def _aligned(self) -> DataFrame:
        """The staged rows in the columns and types that production answers."""
        from pyspark.sql import functions as F

        stored = self.sink.as_stored(self.part.rows)
        columns = []
        # A column that the table gained since is none of ours.
        for field in (one for one in self.sink.service.schema() if one.name in stored.columns):
            value = F.col(quoted(field.name))
            nested = stored.schema[field.name].dataType.typeName() in ("struct", "array", "map")
            if nested and field.dataType.typeName() == "string":
                value = F.to_json(value)
            columns.append(value.cast(field.dataType).alias(field.name))
        return stored.select(*columns)

    @contextmanager
    def _compared(self) -> Iterator[DataFrame]:
        """Production `p` against staging `s`, key by key, with what publishing means for each row."""
        from pyspark.sql import functions as F

        staged = self._aligned()
        held = self._of_window().persist()
        try:
            # Keys may stand elsewhere in production: only those are asked for one by one.
            absent = self.sink.as_stored(self.part.keys).join(held, list(self.sink.key), "left_anti")
            production = held.unionByName(self.sink.rows_of(self.part.spark, absent))
            theirs, ours = _wrapped(production, "p", self.sink.key), _wrapped(staged, "s", self.sink.key)
            joined = theirs.join(ours, _numbered(self.sink.key), "full_outer")
            kind = (
                F.when(F.col("p").isNull(), "added")
                .when(F.col("s").isNull(), "removed")
                .when(_same("p", "s", staged.columns), "unchanged")
                .otherwise("changed")
            )
            compared = joined.withColumn("kind", kind).persist()
            try:
                yield compared
            finally:
                compared.unpersist()
        finally:
            held.unpersist()

    def _of_window(self) -> DataFrame:
        """Production's rows of the window. Without a time nothing says which rows belong to it: then none do."""
        from pyspark.sql import functions as F

        schema = self.sink.service.schema()
        if self.part.regions and "region" not in schema.names:
            raise PublishError(
                f"Cannot tell the rows of region {', '.join(self.part.regions)} in sink {self.part.sink!r}: it has no "
                "column `region`",
                hint="Add the region to the job's result, or backfill all regions.",
            )
        if self.sink.event_time is None:
            return self.part.spark.createDataFrame([], schema)
        rows = fetch(self.part.spark, self.sink.service, self.part.window, self.sink.pace(self.part.spark))
        rows = self.sink.of_window(rows, self.part.window)
        return rows.where(F.col("region").isin(*self.part.regions)) if self.part.regions else rows

    def _save(self, compared: DataFrame) -> DataFrame:
        saved = self.part.before(self.part.run)
        replaced = compared.where("p IS NOT NULL").select("p.*")
        saved.prepare(self.part.spark, replaced.schema)
        saved.write(replaced, copy_of(self.part.run))
        return saved.read(self.part.spark)

    def _refuse_changes(self, compared: DataFrame) -> None:
        """Refuse to go on where what is to be replaced is not what was copied when this publish began."""
        if not self.part.copied(self.part.run):
            return
        before = self.part.before(self.part.run).read(self.part.spark)
        traced = compared.join(_wrapped(before, "b", self.sink.key), _numbered(self.sink.key), "left_outer")
        theirs = traced.where("kind <> 'unchanged'").where(~_same("p", "b", before.columns))
        if changed := theirs.count():
            raise PublishError(
                f"Cannot go on publishing sink {self.part.sink!r}: somebody else has changed {changed} of its rows "
                f"since run {self.part.run} began to publish",
                hint=f"`rekappa undo {self.part.run}` takes back what was done and keeps theirs; then publish anew.",
            )

    def _traced(self, before: DataFrame, staged: DataFrame) -> DataFrame:
        """Before `b`, published `s` and current `c`, key by key, with what undoing means for each row."""
        from pyspark.sql import functions as F

        spark, key = self.part.spark, self.sink.key
        ours = _wrapped(before, "b", key).join(_wrapped(staged, "s", key), _numbered(key), "full_outer")
        keys = ours.select(*(F.col(f"k{number}").alias(name) for number, name in enumerate(key)))
        current = self.sink.rows_of(spark, keys)
        joined = ours.join(_wrapped(current, "c", key), _numbered(key), "left_outer")
        nothing_now, as_published = F.col("c").isNull(), _same("c", "s", staged.columns)
        kind = (
            F.when(F.col("b").isNull() & nothing_now, "unchanged")
            .when(F.col("b").isNull(), F.when(as_published, "removed").otherwise("kept"))
            .when(_same("c", "b", before.columns) & F.col("c").isNotNull(), "unchanged")
            .when(F.col("s").isNull(), F.when(nothing_now, "added").otherwise("kept"))
            .otherwise(F.when(as_published & F.col("c").isNotNull(), "changed").otherwise("kept"))
        )
        return joined.withColumn("kind", kind)

    def _send(self, compared: DataFrame, rows: str, removed: DataFrame) -> None:
        from pyspark.sql import functions as F

        pace = self.sink.pace(self.part.spark)
        written = compared.where("kind IN ('added', 'changed')").select(f"{rows}.*")
        send(written, self.sink.service, "upsert", pace)
        gone = [F.col(f"k{number}").alias(name) for number, name in enumerate(self.sink.key)]
        send(removed.select(*gone), self.sink.service, "delete", pace)


def _numbered(key: Sequence[str]) -> list[str]:
    """Names for the key's columns that no row can have."""
    return [f"k{number}" for number in range(len(key))]


def _wrapped(rows: DataFrame, name: str, key: tuple[str, ...]) -> DataFrame:
    """Each row as one struct, beside its key."""
    from pyspark.sql import functions as F

    keys = [F.col(quoted(column)).alias(alias) for alias, column in zip(_numbered(key), key, strict=True)]
    return rows.select(*keys, F.struct(*(F.col(quoted(column)) for column in rows.columns)).alias(name))


def _same(one: str, other: str, columns: Sequence[str]) -> Column:
    from pyspark.sql import functions as F

    pairs = (F.col(one).getField(name).eqNullSafe(F.col(other).getField(name)) for name in columns)
    return reduce(lambda left, right: left & right, pairs)


def _effect(compared: DataFrame) -> Effect:
    return counted({row["kind"]: row["count"] for row in compared.groupBy("kind").count().collect()})


def _base(compared: DataFrame) -> str:
    """A digest of production's rows that are at stake."""
    return digest(compared.where("p IS NOT NULL").select("p.*"))
