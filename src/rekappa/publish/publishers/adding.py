"""Sinks where what was written stays: Kafka, Parquet files. The staged rows are added, nothing is replaced.

Right for a window that production never wrote, as after an outage. `unchanged` counts what is there already. Messages
have their readers, who may want the newer ones; rows in files would only stand there twice, so that is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rekappa.errors import PublishError
from rekappa.publish.plan import Effect, PublishState, SinkPlan
from rekappa.publish.publishers.contract import Begin, Part, require_base
from rekappa.sinks.contract import BatchId, Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class GivesBack(Protocol):
    """A sink that can take one batch out again."""

    def wrote(self, spark: SparkSession, batch: BatchId) -> bool: ...

    def withdraw(self, spark: SparkSession, batch: BatchId) -> None: ...


@dataclass(frozen=True)
class AddingPublisher:
    """`batches` is the sink again, where it can take a batch out."""

    part: Part
    target: str
    sink: Sink
    batches: GivesBack | None = None

    @property
    def stays(self) -> str | None:
        if self.batches is not None:
            return None
        return "what was sent stays; its messages carry the headers rekappa-run and rekappa-query=publish"

    @property
    def _batch(self) -> BatchId:
        """The one batch that publishing a run writes."""
        return BatchId(self.part.run, "publish", 0)

    def state(self, recorded: PublishState) -> PublishState:
        return recorded

    def look(self, *, force: bool) -> tuple[Effect, str | None]:
        present = self._present()
        doubles = self.batches is not None and present and not self.batches.wrote(self.part.spark, self._batch)
        if doubles and not force:
            raise PublishError(
                f"Cannot publish sink {self.part.sink!r}: {self.target} holds {present} rows of the window already, "
                "and what is published is added beside them",
                hint="Files can't be replaced row by row. Remove those of the window first, or let the sink be an "
                "iceberg table; --force adds the rows all the same.",
            )
        return Effect(added=self.part.rows.count(), unchanged=present), str(present)

    def publish(self, plan: SinkPlan, begin: Begin) -> Effect:
        require_base(plan, str(self._present()))
        begin()
        self.sink.prepare(self.part.spark, self.part.rows.schema)
        self.sink.write(self.part.rows, self._batch)
        return plan.effect

    def undo(self, begin: Begin, *, force: bool) -> Effect:
        if self.batches is None:
            raise PublishError(f"Cannot undo sink {self.part.sink!r}: {self.stays}")
        begin()
        self.batches.withdraw(self.part.spark, self._batch)
        return Effect(removed=self.part.rows.count())

    def _present(self) -> int:
        """How many rows of the window are there."""
        self.sink.expect(self.part.rows.schema)
        held = self.sink.read(self.part.spark, self.part.window)
        return 0 if held is None else held.count()
