"""What every sink promises.

A run writes batch by batch: micro-batches when live or ordered, chunks in bulk. A batch may be written
again after a crash, under the same `BatchId` and with the same rows; the second write must change nothing.
The numbers of one run's query only grow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from rekappa.errors import SinkError
from rekappa.rate import Cap, Pace, pace_of
from rekappa.record import INGESTION, METADATA
from rekappa.sinks.changes import Changes, Step
from rekappa.spark.names import quoted
from rekappa.spark.times import within

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

    @property
    def writer(self) -> str:
        """Who writes: one query of one run."""
        return f"{self.run}/{self.query}"

    def __str__(self) -> str:
        return f"{self.run}/{self.query}/{self.number}"


class Sink(ABC):
    """One place that takes rows. Made by `rekappa.sinks.registry.open_sink`.

    `key` is what upserts go by (empty for a sink that appends), `event_time` the column that says which window
    a row belongs to (a row's ingestion time where the sink names none), `version` the column that says which of two
    rows of one key is newer (the one written later where the sink names none), `deletes` the column that marks rows
    which remove their key and is not stored itself, `caps` the limits on rows per second.
    """

    name: str
    rerun: Rerun
    key: tuple[str, ...] = ()
    event_time: str | None = None
    version: str | None = None
    deletes: str | None = None
    caps: tuple[Cap, ...] = ()

    @abstractmethod
    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Called once before a run writes: create what is missing, refuse what does not fit. May be repeated.

        It alters no table that is there: `changes` says what that would take, `evolve` does it.
        """

    def changes(self, spark: SparkSession, schema: StructType) -> Changes:
        """What its table would need to take rows of this schema. Touches nothing.

        Nothing for a sink that keeps no schema, and where there is no table yet: `prepare` makes it.
        """
        return Changes(self.name)

    def evolve(self, spark: SparkSession, steps: Sequence[Step]) -> None:
        """Alter the table by these steps of `changes`, one at least. One that was done meanwhile is not done again."""
        raise SinkError(f"Cannot alter sink {self.name!r}: it has no table")

    def expect(self, schema: StructType) -> None:  # noqa: B027
        """Tell a sink that stores no schema (Kafka) what columns to read. Touches nothing; `prepare` implies it."""

    @abstractmethod
    def write(self, rows: DataFrame, batch: BatchId) -> None:
        """Write one batch. Called again with the same batch after a crash: that call changes nothing, but computes the
        rows all the same (`rekappa.spark.computing`)."""

    @abstractmethod
    def read(self, spark: SparkSession, window: Window | None = None) -> DataFrame | None:
        """What the sink holds, of the window if one is given; None where Spark can't read it back."""

    def rows_of(self, spark: SparkSession, keys: DataFrame) -> DataFrame | None:
        """What the sink holds of these keys; None where Spark can't read it back."""
        held = self.read(spark)
        if held is None:
            return None
        return held.join(keys, list(self.key), "left_semi").select(*(quoted(name) for name in held.columns))

    def pace(self, spark: SparkSession) -> Pace | None:
        """The caps as tasks need them. A sink applies them as the last step before rows leave Spark."""
        return pace_of(spark, self.caps)

    def as_stored(self, rows: DataFrame) -> DataFrame:
        """The rows as `read` will answer them: a sink with fewer types or less precision than Spark says so here."""
        return rows


def window_column(schema: StructType, event_time: str | None, sink: str) -> str:
    """The column that places a row in time; refuses where there is none."""
    if event_time:
        return event_time
    if METADATA in schema.names:
        return INGESTION
    raise SinkError(
        f"Cannot select a window of sink {sink!r}: it declares no event_time and its rows carry no {METADATA}",
        hint=f"Name the column that says when a row happened:  sinks.{sink}.event_time",
    )


def in_window(rows: DataFrame, event_time: str | None, window: Window | None, sink: str) -> DataFrame:
    """The rows of the window, by event time or, where the sink declares none, by ingestion time."""
    if window is None:
        return rows
    from pyspark.sql import functions as F

    return rows.where(within(F.col(window_column(rows.schema, event_time, sink)), window))
