"""Hive: the window's files are written anew beside the old ones, then the old ones go.

The rows of every touched partition are first copied to an Iceberg table in staging, each with its file's name. Then
one batch holds the staged rows and those rows of the same files that are outside the window; once it is in place the
copied files are removed. Files that the live job adds meanwhile are not touched. Between the last two steps readers
see both, as always with Hive; a retry completes what was cut short.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from rekappa.errors import PublishError
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.past import in_columns_of
from rekappa.publish.plan import Effect, PublishState, SinkPlan
from rekappa.publish.publishers.contract import Begin, Part, copy_of, require_base
from rekappa.sinks.contract import BatchId, window_column
from rekappa.sinks.hive import HiveSink
from rekappa.spark.hashing import digest
from rekappa.spark.names import quoted
from rekappa.spark.times import within

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from rekappa.sinks.iceberg import IcebergAppend

_FILE = "__file"


@dataclass(frozen=True)
class HivePublisher:
    part: Part
    target: str
    sink: HiveSink
    stays: str | None = None

    def state(self, recorded: PublishState) -> PublishState:
        return recorded

    def look(self, *, force: bool) -> tuple[Effect, str | None]:
        if self.part.regions:
            regions = ", ".join(self.part.regions)
            raise PublishError(
                f"Cannot publish only {regions} to Hive sink {self.part.sink!r}: its files hold all regions",
                hint="Backfill all regions of the window.",
            )
        return self._effect(self.part.rows), self._base()

    def publish(self, plan: SinkPlan, begin: Begin) -> Effect:
        require_base(plan, self._base())
        begin()
        self._replace(self.part.rows, self.part.run, "publish")
        return plan.effect

    def undo(self, begin: Begin, *, force: bool) -> Effect:
        spark = self.part.spark
        saved = self.part.before(self.part.run)
        begin()
        if not self.part.copied(self.part.run):
            # No file was touched before the copy was whole.
            spark.sql(f"DROP TABLE IF EXISTS {saved.table} PURGE")
            return Effect()
        held = saved.read(spark).where(self._inside(saved.read(spark)))
        rows = in_columns_of(held, spark.table(self.sink.table))
        effect = self._effect(rows)
        undoing = f"{self.part.run}__undo"
        self._replace(rows, undoing, "undo")
        for table in (self.part.before(undoing).table, saved.table):
            spark.sql(f"DROP TABLE IF EXISTS {table} PURGE")
        return effect

    def _effect(self, rows: DataFrame) -> Effect:
        current = self.sink.read(self.part.spark, self.part.window)
        wanted = rows.select(*(quoted(name) for name in current.columns))
        added, removed = wanted.exceptAll(current).count(), current.exceptAll(wanted).count()
        touched = self._touched(rows).collect()
        names = sorted("/".join(f"{name}={row[name]}" for name in self.sink.partition_by) for row in touched)
        return Effect(added, 0, removed, unchanged=wanted.count() - added, partitions=tuple(names))

    def _base(self) -> str:
        return digest(self.sink.read(self.part.spark, self.part.window))

    def _replace(self, rows: DataFrame, run: str, what: str) -> None:
        from pyspark.sql import functions as F

        spark = self.part.spark
        saved = self.part.before(run)
        self._save(saved, rows, run)
        old = saved.read(spark)
        outside = old.where(~F.coalesce(self._inside(old), F.lit(False))).drop(_FILE)
        # A new copy is a new act: its own name, or publishing again after an undo would be taken for a retry.
        act = load_table(spark, saved.table).currentSnapshot().snapshotId()
        self.sink.write(rows.select(*outside.columns).unionAll(outside), BatchId(run, f"{what}-{act}", 0))
        files = self.sink.files(spark)
        root = f"/{files.root.rsplit('/', 1)[-1]}/"
        for row in old.select(_FILE).distinct().collect():
            files.remove(unquote(row[_FILE]).rsplit(root, 1)[-1])
        spark.catalog.refreshTable(self.sink.table)

    def _save(self, saved: IcebergAppend, rows: DataFrame, run: str) -> None:
        from pyspark.sql import functions as F

        current = self.part.spark.table(self.sink.table).withColumn(_FILE, F.col("_metadata.file_path"))
        old = current.join(F.broadcast(self._touched(rows)), list(self.sink.partition_by), "left_semi")
        saved.prepare(self.part.spark, old.schema)
        saved.write(old, copy_of(run))

    def _touched(self, rows: DataFrame) -> DataFrame:
        """The partitions that hold rows of the window, now or afterwards."""
        current = self.sink.read(self.part.spark, self.part.window)
        columns = [quoted(name) for name in self.sink.partition_by]
        return rows.select(*columns).union(current.select(*columns)).distinct()

    def _inside(self, rows: DataFrame) -> Column:
        from pyspark.sql import functions as F

        return within(F.col(window_column(rows.schema, self.sink.event_time, self.sink.name)), self.part.window)
