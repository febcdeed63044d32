"""Parquet files: one folder per batch, which appears whole or not at all.

A batch is written into a hidden folder and renamed to `batch=RUN-QUERY-NUMBER`; a folder of that name means the
batch is done. The rename is atomic on local disks and HDFS; on an object store use an Iceberg sink instead.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rekappa.errors import SinkError
from rekappa.rate import paced
from rekappa.sinks.changes import SPARK_TAKES, Changes, TypeRules, compare, never, require_fit
from rekappa.sinks.contract import BatchId, Rerun, Sink, in_window
from rekappa.sinks.fit import columns_of, require_columns
from rekappa.spark.computing import compute

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from rekappa.timeline import Window


_RULES = TypeRules(takes=SPARK_TAKES, widens=never, instead="files can't be altered: write to another path from now on")


def folder_name(batch: BatchId) -> str:
    """A batch's name as a folder: characters that a file system may not like become underscores."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", f"{batch.run}-{batch.query}-{batch.number}")


class BatchFiles:
    """Hadoop's file system for one folder: local, HDFS, whatever the path says."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self.root = root.rstrip("/")
        self._fs = self._path(self.root).getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    def at(self, name: str) -> Any:
        return self._path(f"{self.root}/{name}")

    def exists(self, name: str) -> bool:
        return bool(self._fs.exists(self.at(name)))

    def names(self, name: str = "") -> list[str]:
        where = self.at(name) if name else self._path(self.root)
        if not self._fs.exists(where):
            return []
        return sorted(status.getPath().getName() for status in self._fs.listStatus(where))

    def is_folder(self, name: str) -> bool:
        return bool(self._fs.getFileStatus(self.at(name)).isDirectory())

    def make(self, name: str) -> None:
        self._fs.mkdirs(self.at(name))

    def remove(self, name: str) -> None:
        self._fs.delete(self.at(name), True)

    def rename(self, old: str, new: str) -> None:
        if not self._fs.rename(self.at(old), self.at(new)):
            raise SinkError(f"Cannot rename {self.root}/{old} to {new}")


class ParquetSink(Sink):
    rerun = Rerun.APPEND_ONLY

    def __init__(self, name: str, path: str, event_time: str | None = None) -> None:
        self.name = name
        self.path = path
        self.event_time = event_time
        self._schema: StructType | None = None

    def expect(self, schema: StructType) -> None:
        self._schema = schema

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        require_columns(schema, (self.event_time,) if self.event_time else (), "event_time", self.name)
        require_fit(self.changes(spark, schema))
        self._schema = schema

    def changes(self, spark: SparkSession, schema: StructType) -> Changes:
        files = BatchFiles(spark, self.path)
        if not self._batches(files):
            return Changes(self.path)
        found = compare(self.path, columns_of(schema), columns_of(self._open(spark, files).schema), _RULES)
        gained = (f"column {step.column} is not in the files ({_RULES.instead})" for step in found.steps)
        return replace(found, steps=(), stuck=(*gained, *found.stuck))

    def write(self, rows: DataFrame, batch: BatchId) -> None:
        files = BatchFiles(rows.sparkSession, self.path)
        name = folder_name(batch)
        final, hidden = f"batch={name}", f"_writing-{name}"
        if files.exists(final):
            compute(rows)
            return
        paced(rows, self.pace(rows.sparkSession)).write.mode("overwrite").parquet(f"{files.root}/{hidden}")
        files.rename(hidden, final)

    def read(self, spark: SparkSession, window: Window | None = None) -> DataFrame:
        files = BatchFiles(spark, self.path)
        if self._batches(files):
            return in_window(self._open(spark, files), self.event_time, window, self.name)
        if self._schema is not None:
            return spark.createDataFrame([], self._schema)
        raise SinkError(f"Cannot read sink {self.name!r}: {self.path} holds no batch")

    def wrote(self, spark: SparkSession, batch: BatchId) -> bool:
        return BatchFiles(spark, self.path).exists(f"batch={folder_name(batch)}")

    def withdraw(self, spark: SparkSession, batch: BatchId) -> None:
        """Take one batch out again."""
        BatchFiles(spark, self.path).remove(f"batch={folder_name(batch)}")

    @staticmethod
    def _batches(files: BatchFiles) -> list[str]:
        return [name for name in files.names() if name.startswith("batch=")]

    def _open(self, spark: SparkSession, files: BatchFiles) -> DataFrame:
        folders = [f"{files.root}/{name}" for name in self._batches(files)]
        return spark.read.option("recursiveFileLookup", "true").parquet(*folders)
