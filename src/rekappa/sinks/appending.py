"""Publishing to sinks where what was written stays: the staged rows are added, nothing is replaced.

Right for a window that production never wrote, as after an outage. `effect` says what is there already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rekappa.errors import PublishError
from rekappa.sinks.contract import BatchId, Effect, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rekappa.timeline import Window


def published_batch(run: str) -> BatchId:
    """The one batch that publishing a run writes."""
    return BatchId(run, "publish", 0)


class AppendPublishing(Sink):
    """Publishes by adding; `withdraw` takes a batch out again where the sink can."""

    def effect(
        self, spark: SparkSession, staged: DataFrame, window: Window, run: str, regions: Sequence[str] = ()
    ) -> Effect:
        self.expect(staged.schema)
        try:
            present = self.read(spark, window)
        except Exception:
            present = None
        return Effect(staged.count(), 0, 0, unchanged=0 if present is None else present.count())

    def publish(
        self, spark: SparkSession, staged: DataFrame, window: Window, run: str, regions: Sequence[str] = ()
    ) -> Effect:
        self.prepare(spark, staged.schema)
        self.write(staged, published_batch(run))
        return Effect(staged.count(), 0, 0)

    def undo(
        self, spark: SparkSession, staged: DataFrame, window: Window, run: str, regions: Sequence[str] = ()
    ) -> Effect:
        self.withdraw(spark, published_batch(run))
        return Effect(0, 0, staged.count())

    def withdraw(self, spark: SparkSession, batch: BatchId) -> None:
        raise PublishError(
            f"Cannot undo sink {self.name!r}: what was sent stays",
            hint="Its messages carry the headers rekappa-run and rekappa-query=publish: consumers can skip them.",
        )
