"""Files whose names say which batch wrote them: Parquet folders and Hive partitions. They are moved aside, by renames,
into a hidden folder of the same place, and moved back to undo it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rekappa.recovery.plan import SinkReset
from rekappa.recovery.resets.contract import Abandoned
from rekappa.sinks.contract import BatchId
from rekappa.sinks.hive import HiveSink, partition_folders, written_by
from rekappa.sinks.parquet import BatchFiles, ParquetSink, folder_name


def _aside(kind: str, operation: str) -> str:
    return f"_rekappa_{kind}_{operation}"


@dataclass(frozen=True)
class ParquetReset:
    gone: Abandoned
    sink: ParquetSink

    def look(self) -> SinkReset:
        files = self._files()
        folders = [f"{files.root}/{name}" for name in self._named(files)]
        rows = self.gone.spark.read.parquet(*folders).count() if folders else 0
        return SinkReset(self.gone.sink, self.gone.target, removed=rows, told=f"the folders of {len(folders)} batches")

    def carry_out(self) -> None:
        files = self._files()
        _move(files, self._named(files), _aside("abandoned", self.gone.operation))

    def look_back(self) -> None:
        """What was moved aside is there until it may be forgotten."""

    def undo(self) -> None:
        files, operation = self._files(), self.gone.operation
        aside = _aside("abandoned", operation)
        newer = [name for name in files.names() if _batch_of(name, operation, self.gone.query) is not None]
        _move(files, newer, _aside("undone", operation))
        for name in files.names(aside):
            files.rename(f"{aside}/{name}", name)

    def _named(self, files: BatchFiles) -> list[str]:
        return [name for name in files.names() if self._is_gone(name)]

    def _is_gone(self, name: str) -> bool:
        batches = ((leg, _batch_of(name, leg.run, self.gone.query)) for leg in self.gone.legs)
        return any(batch is not None and leg.holds(batch) for leg, batch in batches)

    def _files(self) -> BatchFiles:
        return BatchFiles(self.gone.spark, self.sink.path)


def _batch_of(folder: str, run: str, query: str) -> int | None:
    """The batch of this run's query whose folder it is."""
    stem = folder_name(BatchId(run, query, 0)).removesuffix("0")
    found = re.fullmatch(rf"batch={re.escape(stem)}(\d+)", folder)
    return int(found[1]) if found else None


def _move(files: BatchFiles, names: list[str], aside: str) -> None:
    if names:
        files.make(aside)
    for name in names:
        files.rename(name, f"{aside}/{name}")


@dataclass(frozen=True)
class HiveReset:
    gone: Abandoned
    sink: HiveSink

    def look(self) -> SinkReset:
        spark = self.gone.spark
        if not spark.catalog.tableExists(self.sink.table):
            return SinkReset(self.gone.sink, self.sink.table, told="nothing was written since")
        files = self.sink.files(spark)
        paths = [f"{files.root}/{path}" for path in self._gone(files)]
        rows = spark.read.parquet(*paths).count() if paths else 0
        return SinkReset(self.gone.sink, self.sink.table, removed=rows, told=f"{len(paths)} files of its partitions")

    def carry_out(self) -> None:
        if self.gone.spark.catalog.tableExists(self.sink.table):
            files = self.sink.files(self.gone.spark)
            self._aside(files, self._gone(files), _aside("abandoned", self.gone.operation))

    def look_back(self) -> None:
        """As of Parquet."""

    def undo(self) -> None:
        if not self.gone.spark.catalog.tableExists(self.sink.table):
            return
        files, operation = self.sink.files(self.gone.spark), self.gone.operation
        self._aside(files, list(self._of_new(files)), _aside("undone", operation))
        aside, depth = _aside("abandoned", operation), len(self.sink.partition_by)
        for folder in partition_folders(files, aside, depth) if files.exists(aside) else ():
            for name in files.names(f"{aside}/{folder}"):
                files.rename(f"{aside}/{folder}/{name}", f"{folder}/{name}")
        self.gone.spark.catalog.refreshTable(self.sink.table)

    def _aside(self, files: BatchFiles, paths: list[str], aside: str) -> None:
        for path in paths:
            files.make(f"{aside}/{path.rpartition('/')[0]}")
            files.rename(path, f"{aside}/{path}")
        self.gone.spark.catalog.refreshTable(self.sink.table)

    def _gone(self, files: BatchFiles) -> list[str]:
        return [path for path, written in self._all(files) if written is not None and self._is_gone(*written)]

    def _of_new(self, files: BatchFiles) -> Iterator[str]:
        new = written_by(BatchId(self.gone.operation, self.gone.query, 0))
        return (path for path, written in self._all(files) if written is not None and written[0] == new)

    def _is_gone(self, writer: str, batch: int) -> bool:
        legs = self.gone.legs
        return any(writer == written_by(BatchId(leg.run, self.gone.query, 0)) and leg.holds(batch) for leg in legs)

    def _all(self, files: BatchFiles) -> Iterator[tuple[str, tuple[str, int] | None]]:
        """The table's files, each with the writer and the batch that its name says."""
        for folder in partition_folders(files, "", len(self.sink.partition_by)):
            for name in files.names(folder):
                found = re.match(r"(.+?)\.(\d+)\.part-", name)
                yield f"{folder}/{name}", (found[1], int(found[2])) if found else None
