"""Publishing to Hive: the window's files are written anew beside the old ones, then the old ones go.

The rows of every touched partition are first copied to an Iceberg table in staging, each with its file's name. Then
one batch holds the staged rows and those rows of the same files that are outside the window; once it is in place the
copied files are removed. Files that the live job adds meanwhile are not touched. Between the last two steps readers
see both, as always with Hive; a retry completes what was cut short.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from rekappa.errors import PublishError
from rekappa.iceberg.commits import load_table
from rekappa.sinks.contract import BatchId, Effect, window_column
from rekappa.sinks.hive import HiveSink
from rekappa.sinks.upserting import Before

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from rekappa.sinks.iceberg import IcebergAppend
    from rekappa.timeline import Window

_FILE = "__file"


class HivePublishing(HiveSink):
    before: Before

    def effect(
        self, spark: SparkSession, staged: DataFrame, window: Window, run: str, regions: Sequence[str] = ()
    ) -> Effect:
        self._refuse(regions)
        current = self.read(spark, window)
        columns = current.columns
        added = staged.select(*columns).exceptAll(current).count()
        removed = current.exceptAll(staged.select(*columns)).count()
        touched = self._touched(spark, staged, window)
        names = sorted("/".join(f"{name}={row[name]}" for name in self.partition_by) for row in touched.collect())
        return Effect(added, 0, removed, unchanged=staged.count() - added, partitions=tuple(names))

    def publish(
        self, spark: SparkSession, staged: DataFrame, window: Window, run: str, regions: Sequence[str] = ()
    ) -> Effect:
        effect = self.effect(spark, staged, window, run, regions)
        self._replace(spark, staged, window, run, "publish")
        return effect

    def undo(
        self, spark: SparkSession, staged: DataFrame, window: Window, run: str, regions: Sequence[str] = ()
    ) -> Effect:
        self._refuse(regions)
        saved = self.before(run)
        if not spark.catalog.tableExists(saved.table):
            return Effect(0, 0, 0)
        rows = saved.read(spark).where(self._inside(saved.read(spark), window)).drop(_FILE)
        effect = self.effect(spark, rows, window, run)
        undoing = f"{run}__undo"
        self._replace(spark, rows, window, undoing, "undo")
        for table in (self.before(undoing).table, saved.table):
            spark.sql(f"DROP TABLE IF EXISTS {table} PURGE")
        return effect

    def _replace(self, spark: SparkSession, rows: DataFrame, window: Window, run: str, what: str) -> None:
        from pyspark.sql import functions as F

        saved = self.before(run)
        self._save(spark, saved, rows, window, run)
        old = saved.read(spark)
        outside = old.where(~F.coalesce(self._inside(old, window), F.lit(False))).drop(_FILE)
        # A new copy is a new act: its own name, or publishing again after an undo would be taken for a retry.
        act = load_table(spark, saved.table).currentSnapshot().snapshotId()
        self.write(rows.select(*outside.columns).unionAll(outside), BatchId(run, f"{what}-{act}", 0))
        files = self.files(spark)
        root = f"/{files.root.rsplit('/', 1)[-1]}/"
        for row in old.select(_FILE).distinct().collect():
            files.remove(unquote(row[_FILE]).rsplit(root, 1)[-1])
        spark.catalog.refreshTable(self.table)

    def _save(self, spark: SparkSession, saved: IcebergAppend, rows: DataFrame, window: Window, run: str) -> None:
        from pyspark.sql import functions as F

        touched = self._touched(spark, rows, window)
        current = spark.table(self.table).withColumn(_FILE, F.col("_metadata.file_path"))
        old = current.join(F.broadcast(touched), list(self.partition_by), "left_semi")
        saved.prepare(spark, old.schema)
        saved.write(old, BatchId(run, "before", 0))

    def _touched(self, spark: SparkSession, rows: DataFrame, window: Window) -> DataFrame:
        """The partitions that hold rows of the window, now or afterwards."""
        current = self.read(spark, window)
        return rows.select(*self.partition_by).union(current.select(*self.partition_by)).distinct()

    def _inside(self, rows: DataFrame, window: Window) -> Column:
        from pyspark.sql import functions as F

        moment = F.col(window_column(rows.schema, self.event_time, self.name))
        return (moment >= F.lit(window.start)) & (moment < F.lit(window.end))

    def _refuse(self, regions: Sequence[str]) -> None:
        if regions:
            raise PublishError(
                f"Cannot publish only {', '.join(regions)} to Hive sink {self.name!r}: its files hold all regions",
                hint="Backfill all regions of the window.",
            )
