"""Sinks that keep nothing: the console and nowhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rekappa.rate import paced
from rekappa.sinks.contract import BatchId, Rerun, Sink
from rekappa.spark.computing import compute

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from rekappa.timeline import Window


class NullSink(Sink):
    """Computes every row and drops it."""

    rerun = Rerun.IDEMPOTENT

    def __init__(self, name: str, event_time: str | None = None) -> None:
        self.name = name
        self.event_time = event_time

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        pass

    def write(self, rows: DataFrame, batch: BatchId) -> None:
        compute(paced(rows, self.pace(rows.sparkSession)))

    def read(self, spark: SparkSession, window: Window | None = None) -> DataFrame | None:
        return None


class ConsoleSink(NullSink):
    """Prints the first rows of each batch to standard error; a batch that is retried is printed once per process."""

    rerun = Rerun.APPEND_ONLY

    def __init__(self, name: str, rows: int = 20, event_time: str | None = None) -> None:
        super().__init__(name, event_time)
        self._rows = rows
        self._printed: dict[str, int] = {}

    def write(self, rows: DataFrame, batch: BatchId) -> None:
        # All of them, though the first are shown: a limit would leave the others, and their state, out.
        kept = paced(rows, self.pace(rows.sparkSession)).persist()
        try:
            compute(kept)
            fresh = self._printed.get(batch.writer, -1) < batch.number
            shown = kept.limit(self._rows).toPandas() if self._rows and fresh else None
        finally:
            kept.unpersist()
        if shown is not None and len(shown):
            print(f"-- {self.name}, batch {batch.number}\n{shown.to_string(index=False)}", file=sys.stderr, flush=True)
        self._printed[batch.writer] = batch.number
