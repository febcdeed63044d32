"""Hive partitions: Parquet files, each batch's moved into place once it is complete.

A batch is written whole into a hidden folder of the table; renaming that folder is the commit. From then on its
files only have to be moved into their partitions, which a retry completes if a crash cut it short. The name of the
last finished batch stays behind, so that a retry of a finished batch does nothing. Readers may see a batch partly
while it is moved, as always with Hive.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rekappa.errors import SinkError
from rekappa.rate import paced
from rekappa.sinks.changes import SPARK_TAKES, Changes, Step, TypeRules, compare, never, require_fit
from rekappa.sinks.contract import BatchId, Rerun, Sink, in_window
from rekappa.sinks.fit import columns_ddl, columns_of, require_columns
from rekappa.sinks.parquet import BatchFiles
from rekappa.spark.computing import compute
from rekappa.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from rekappa.timeline import Window

_WORK = "_rekappa"
_RULES = TypeRules(
    takes=SPARK_TAKES,
    widens=never,
    instead="Spark alters no type of a Hive table: give the column a new name, or make a new table",
)


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "_", text)


def written_by(batch: BatchId) -> str:
    """How the names of a writer's files begin."""
    return _plain(batch.writer)


class HiveSink(Sink):
    rerun = Rerun.RESETTABLE

    def __init__(
        self,
        name: str,
        database: str,
        table: str,
        partition_by: tuple[str, ...],
        key: tuple[str, ...] = (),
        event_time: str | None = None,
    ) -> None:
        self.name = name
        self.table = f"spark_catalog.{database}.{table}"
        self.partition_by = partition_by
        self.key = key
        self.event_time = event_time
        self._database = database

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        require_hive(spark, self.name)
        require_columns(schema, self.partition_by, "partition_by", self.name)
        require_columns(schema, (self.event_time,) if self.event_time else (), "event_time", self.name)
        if not spark.catalog.tableExists(self.table):
            spark.sql(f"CREATE DATABASE IF NOT EXISTS {self._database}")
            partitions = ", ".join(quoted(column) for column in self.partition_by)
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS {self.table} ({columns_ddl(columns_of(schema))}) USING parquet "
                f"PARTITIONED BY ({partitions})"
            )
        require_fit(self.changes(spark, schema))

    def changes(self, spark: SparkSession, schema: StructType) -> Changes:
        require_hive(spark, self.name)
        if not spark.catalog.tableExists(self.table):
            return Changes(self.table)
        spark.catalog.refreshTable(self.table)
        return compare(self.table, columns_of(schema), columns_of(spark.table(self.table).schema), _RULES)

    def evolve(self, spark: SparkSession, steps: Sequence[Step]) -> None:
        held = columns_of(spark.table(self.table).schema)
        added = {step.column: step.kind for step in steps if step.column not in held}
        if added:
            spark.sql(f"ALTER TABLE {self.table} ADD COLUMNS ({columns_ddl(added)})")
        spark.catalog.refreshTable(self.table)

    def write(self, rows: DataFrame, batch: BatchId) -> None:
        spark = rows.sparkSession
        files = self.files(spark)
        writer = written_by(batch)
        if self._done(files, writer) >= batch.number:
            compute(rows)
            return
        writing, ready = (f"{_WORK}/{writer}.{batch.number}.{state}" for state in ("writing", "ready"))
        if files.exists(ready):
            compute(rows)
        else:
            columns = spark.table(self.table).columns
            ordered = paced(rows.select(*(quoted(name) for name in columns)), self.pace(spark))
            ordered.write.mode("overwrite").partitionBy(*self.partition_by).parquet(f"{files.root}/{writing}")
            files.rename(writing, ready)
        self._move(spark, files, ready, f"{writer}.{batch.number}")
        files.rename(ready, f"{_WORK}/{writer}.{batch.number}.done")
        for old in self._finished(files, writer):
            if old < batch.number:
                files.remove(f"{_WORK}/{writer}.{old}.done")

    def _move(self, spark: SparkSession, files: BatchFiles, ready: str, prefix: str) -> None:
        """Move what is still in the ready folder; a file's name says its batch, so nothing can be moved twice."""
        folders = partition_folders(files, ready, len(self.partition_by))
        for folder in folders:
            files.make(folder)
            for name in files.names(f"{ready}/{folder}"):
                if name.endswith(".parquet"):
                    files.rename(f"{ready}/{folder}/{name}", f"{folder}/{prefix}.{name}")
        if folders:
            spark.sql(f"MSCK REPAIR TABLE {self.table}") if len(folders) > 64 else self._add(spark, folders)
        spark.catalog.refreshTable(self.table)

    def _add(self, spark: SparkSession, folders: list[str]) -> None:
        specs = " ".join(f"PARTITION ({partition_spec(folder)})" for folder in folders)
        spark.sql(f"ALTER TABLE {self.table} ADD IF NOT EXISTS {specs}")

    def files(self, spark: SparkSession) -> BatchFiles:
        """The table's folder."""
        described = spark.sql(f"DESCRIBE FORMATTED {self.table}").where("col_name = 'Location'").collect()
        return BatchFiles(spark, described[0].data_type)

    @staticmethod
    def _finished(files: BatchFiles, writer: str) -> list[int]:
        names = files.names(_WORK)
        return [int(name.split(".")[-2]) for name in names if re.fullmatch(rf"{re.escape(writer)}\.\d+\.done", name)]

    def _done(self, files: BatchFiles, writer: str) -> int:
        return max(self._finished(files, writer), default=-1)

    def read(self, spark: SparkSession, window: Window | None = None) -> DataFrame:
        require_hive(spark, self.name)
        if not spark.catalog.tableExists(self.table):
            raise SinkError(f"Cannot read sink {self.name!r}: table {self.table} does not exist")
        return in_window(spark.table(self.table), self.event_time, window, self.name)


def require_hive(spark: SparkSession, sink: str) -> None:
    """Refuse a session that was started without Hive."""
    if spark.conf.get("spark.sql.catalogImplementation", "in-memory") != "hive":
        raise SinkError(
            f"Cannot use Hive sink {sink!r}: Spark was started without Hive support",
            hint="Add to the profile:  spark.sql.catalogImplementation: hive",
        )


def partition_folders(files: BatchFiles, root: str, depth: int) -> list[str]:
    """The partition folders below `root`, like day=2026-11-01/region=us."""
    found = [""]
    for _ in range(depth):
        found = [
            f"{above}/{name}".lstrip("/") for above in found for name in files.names(f"{root}/{above}") if "=" in name
        ]
    return found


def partition_spec(folder: str) -> str:
    """A partition folder as SQL: day='2026-11-01', region='us'."""
    from urllib.parse import unquote

    parts = (part.split("=", 1) for part in folder.split("/"))
    spelled = ((name, unquote(value).replace("\\", "\\\\").replace("'", "\\'")) for name, value in parts)
    return ", ".join(
        f"`{name}` = {'NULL' if value == '__HIVE_DEFAULT_PARTITION__' else repr_sql(value)}" for name, value in spelled
    )


def repr_sql(value: str) -> str:
    return f"'{value}'"
