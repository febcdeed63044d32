"""What every sink promises.

A run writes batch by batch: micro-batches when live or ordered, chunks in bulk. A batch may be written
again after a crash, under the same `BatchId` and with the same rows; the second write must change nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from rekappa.timeline import Window


class Rerun(Enum):
    """How a sink takes the same output a second time."""

    IDEMPOTENT = "upserts by key: writing again changes nothing"
    RESETTABLE = "a window can be dropped and written again"
    APPEND_ONLY = "what was written stays: a re-run adds to it"


@dataclass(frozen=True, slots=True)
class BatchId:
    """Names one batch of one query of one run, for ever."""

    run: str
    query: str
    number: int

    def __str__(self) -> str:
        return f"{self.run}/{self.query}/{self.number}"


class Sink(ABC):
    """One place that takes rows. Made by `rekappa.sinks.registry.open_sink`."""

    name: str
    rerun: Rerun

    @abstractmethod
    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Called once before a run writes: create what is missing, refuse what does not fit. May be repeated."""

    @abstractmethod
    def write(self, rows: DataFrame, batch: BatchId) -> None:
        """Write one batch. Called again with the same batch after a crash: that call changes nothing."""

    @abstractmethod
    def read(self, spark: SparkSession, window: Window | None = None) -> DataFrame | None:
        """What the sink holds, of the window if one is given; None where Spark can't read it back."""
