"""Publishing to sinks that hold one row per key and no history of their own.

Publishing first copies what it is about to replace into an Iceberg table in staging (one commit: it is there whole or
not at all), then upserts the rows that differ and deletes those of the window that the backfill did not make. A
publish that was cut short compares again and does the rest. Undo brings the copied rows back, except where somebody
else has written since: such rows are kept and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rekappa.rate import Pace
from rekappa.record import METADATA, REGION
from rekappa.sinks.contract import BatchId, Effect, window_column
from rekappa.sinks.iceberg import IcebergAppend
from rekappa.sinks.service import ServiceSink, send

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from rekappa.timeline import Window

Before = Callable[[str], IcebergAppend]
_KINDS = ("added", "changed", "removed", "unchanged", "kept")


class UpsertSink(ServiceSink):
    """A keyed sink that can publish a staged window and undo it. `before` names a run's table of replaced rows."""

    before: Before

    def effect(
        self, spark: SparkSession, staged: DataFrame, window: Window, run: str, regions: Sequence[str] = ()
    ) -> Effect:
        return _counted(self._compared(spark, staged, window, regions))

    def publish(
        self, spark: SparkSession, staged: DataFrame, window: Window, run: str, regions: Sequence[str] = ()
    ) -> Effect:
        compared = self._compared(spark, staged, window, regions).persist()
        try:
            effect = _counted(compared)
            saved = _wrapped(self._save(spark, compared, run), "b", self.key).drop("b")
            # Only what was saved may go: a row that came since then is not ours to delete.
            removed = compared.where("kind = 'removed'").join(saved, saved.columns, "left_semi")
            self._act(compared, "s", removed, self.pace(spark))
        finally:
            compared.unpersist()
        return effect

    def undo(
        self, spark: SparkSession, staged: DataFrame, window: Window, run: str, regions: Sequence[str] = ()
    ) -> Effect:
        saved = self.before(run)
        if not spark.catalog.tableExists(saved.table):
            return Effect(0, 0, 0)
        compared = self._traced(saved.read(spark), self._aligned(spark, staged), self.read(spark)).persist()
        try:
            effect = _counted(compared)
            self._act(compared, "b", compared.where("kind = 'removed'"), self.pace(spark))
        finally:
            compared.unpersist()
        # The next publish of this run must look at production anew.
        spark.sql(f"DROP TABLE {saved.table} PURGE")
        return effect

    def _aligned(self, spark: SparkSession, staged: DataFrame) -> DataFrame:
        """The staged rows in the columns and types that production answers."""
        from pyspark.sql import functions as F

        stored = self.as_stored(staged)
        columns = []
        for field in self.service.schema():
            value = F.col(f"`{field.name}`")
            nested = stored.schema[field.name].dataType.typeName() in ("struct", "array", "map")
            if nested and field.dataType.typeName() == "string":
                value = F.to_json(value)
            columns.append(value.cast(field.dataType).alias(field.name))
        return stored.select(*columns)

    def _compared(self, spark: SparkSession, staged: DataFrame, window: Window, regions: Sequence[str]) -> DataFrame:
        """Production `p` against staging `s`, key by key, with what publishing means for each row."""
        from pyspark.sql import functions as F

        production = self.read(spark)
        ours = _wrapped(self._aligned(spark, staged), "s", self.key)
        theirs = _wrapped(production, "p", self.key)
        joined = theirs.join(ours, [f"k{number}" for number in range(len(self.key))], "full_outer")
        ours_only = F.col("p").isNull()
        kind = (
            F.when(ours_only, "added")
            .when(F.col("s").isNull(), "removed")
            .when(_same("p", "s", production.columns), "unchanged")
            .otherwise("changed")
        )
        # Without a time nothing says which other rows belong to the window: then none is removed.
        timed = self.event_time or METADATA in production.columns
        column = window_column(production.schema, self.event_time, self.name) if timed else None
        inside = _inside("p", production, column, window, regions) if column else F.lit(False)
        return joined.where(F.col("s").isNotNull() | inside).withColumn("kind", kind)

    def _save(self, spark: SparkSession, compared: DataFrame, run: str) -> DataFrame:
        saved = self.before(run)
        replaced = compared.where("p IS NOT NULL").select("p.*")
        saved.prepare(spark, replaced.schema)
        saved.write(replaced, BatchId(run, "before", 0))
        return saved.read(spark)

    def _traced(self, before: DataFrame, staged: DataFrame, current: DataFrame) -> DataFrame:
        """Before `b`, published `s` and current `c`, key by key, with what undoing means for each row."""
        from pyspark.sql import functions as F

        columns = current.columns
        keys = [f"k{number}" for number in range(len(self.key))]
        ours = _wrapped(before, "b", self.key).join(_wrapped(staged, "s", self.key), keys, "full_outer")
        joined = ours.join(_wrapped(current, "c", self.key), keys, "left_outer")
        nothing_now, as_published = F.col("c").isNull(), _same("c", "s", columns)
        kind = (
            F.when(F.col("b").isNull() & nothing_now, "unchanged")
            .when(F.col("b").isNull(), F.when(as_published, "removed").otherwise("kept"))
            .when(_same("c", "b", columns) & F.col("c").isNotNull(), "unchanged")
            .when(F.col("s").isNull(), F.when(nothing_now, "added").otherwise("kept"))
            .otherwise(F.when(as_published & F.col("c").isNotNull(), "changed").otherwise("kept"))
        )
        return joined.withColumn("kind", kind)

    def _act(self, compared: DataFrame, rows: str, removed: DataFrame, pace: Pace | None) -> None:
        from pyspark.sql import functions as F

        written = compared.where("kind IN ('added', 'changed')").select(f"{rows}.*")
        send(written, self.service, "upsert", pace)
        gone = [F.col(f"k{number}").alias(name) for number, name in enumerate(self.key)]
        send(removed.select(*gone), self.service, "delete", pace)


def _wrapped(rows: DataFrame, name: str, key: tuple[str, ...]) -> DataFrame:
    """Each row as one struct, beside its key."""
    from pyspark.sql import functions as F

    keys = [F.col(f"`{column}`").alias(f"k{number}") for number, column in enumerate(key)]
    return rows.select(*keys, F.struct(*(F.col(f"`{column}`") for column in rows.columns)).alias(name))


def _same(one: str, other: str, columns: Sequence[str]) -> Column:
    from functools import reduce

    from pyspark.sql import functions as F

    pairs = (F.col(f"{one}.`{name}`").eqNullSafe(F.col(f"{other}.`{name}`")) for name in columns)
    return reduce(lambda left, right: left & right, pairs)


def _inside(name: str, rows: DataFrame, column: str, window: Window, regions: Sequence[str]) -> Column:
    from pyspark.sql import functions as F

    moment = F.col(f"{name}.{column}")
    inside = (moment >= F.lit(window.start)) & (moment < F.lit(window.end))
    if regions:
        region = REGION if METADATA in rows.columns else "region"
        inside = inside & F.col(f"{name}.{region}").isin(*regions)
    return F.coalesce(inside, F.lit(False))


def _counted(compared: DataFrame) -> Effect:
    found = {row["kind"]: row["count"] for row in compared.groupBy("kind").count().collect()}
    return Effect(**{kind: found.get(kind, 0) for kind in _KINDS})
