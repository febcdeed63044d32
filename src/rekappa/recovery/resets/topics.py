"""Kafka topics: nothing is wiped. A line is drawn behind the last batch that counts, and readers drop what lies beyond.

Undone, the line is drawn anew: what was abandoned counts again, and nothing of the run that went on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING

from rekappa.errors import RunError, SourceError
from rekappa.fence.filter import sent_by
from rekappa.fence.topic import LINEAGE
from rekappa.recovery.graph import FirstAbandoned
from rekappa.recovery.plan import SinkReset
from rekappa.recovery.resets.contract import Abandoned
from rekappa.sinks.kafka import KafkaSink

if TYPE_CHECKING:
    from pyspark.sql import Column

EPOCH_MILLIS = 1000


@dataclass(frozen=True)
class TopicReset:
    gone: Abandoned
    sink: KafkaSink

    def look(self) -> SinkReset:
        self._require_lineage()
        count = sum(number for number, _ in self._found.values())
        told = (
            "nothing was sent since" if not count else "they stay in the topic and count no longer; readers drop them"
        )
        return SinkReset(self.gone.sink, self.sink.topic, removed=count, told=told)

    def carry_out(self) -> None:
        self._draw(undone=False)

    def look_back(self) -> None:
        self._require_lineage()

    def undo(self) -> None:
        self._draw(undone=True)

    @property
    def firsts(self) -> Mapping[int, FirstAbandoned]:
        """From where on messages are abandoned, of each partition that has any, or had."""
        seen = {partition: FirstAbandoned(first) for partition, (_, first) in self._found.items()}
        lost = {partition: FirstAbandoned(first, self.gone.since) for partition, first in self._lost.items()}
        return {at: reduce(FirstAbandoned.joined, (one[at] for one in (seen, lost) if at in one)) for at in seen | lost}

    @cached_property
    def _found(self) -> dict[int, tuple[int, int]]:
        """Of each partition, how many messages the abandoned batches sent to it, and the offset of the first."""
        from pyspark.sql import functions as F

        spark = self.gone.spark
        if not self.gone.legs or not self.sink.ends(spark):
            return {}
        since = str(int(self.gone.since.timestamp() * EPOCH_MILLIS))
        told = {"startingTimestamp": since, "startingOffsetsByTimestampStrategy": "latest"}
        messages = self.sink.load(spark, **told).where(reduce(or_, self._abandoned()))
        rows = messages.groupBy("partition").agg(F.count(F.lit(1)).alias("messages"), F.min("offset").alias("first"))
        return {row["partition"]: (row["messages"], row["first"]) for row in rows.collect()}

    @cached_property
    def _lost(self) -> Mapping[int, int]:
        """The partitions of which Kafka may have dropped some of what the abandoned batches sent, and where each begins
        now."""
        return self.sink.may_lack(self.gone.spark, self.gone.since) if self.gone.legs else {}

    def _abandoned(self) -> list[Column]:
        from pyspark.sql import functions as F

        return [sent_by(F.col("headers"), (leg.run, self.gone.query), leg.after, leg.until) for leg in self.gone.legs]

    def _draw(self, *, undone: bool) -> None:
        gone, lineage = self.gone, self.sink.lineage
        line = lineage.fence(self.sink.topic).line(gone.app, gone.query)
        change = line.restored if undone else line.abandoned
        lineage.draw(self.sink.topic, change(gone.legs, gone.operation))

    def _require_lineage(self) -> None:
        try:
            self.sink.lineage.require_compacted()
        except SourceError as error:
            raise RunError(
                f"Cannot rewind sink {self.gone.sink!r}: what was sent can't be fenced off without topic {LINEAGE!r}: "
                f"{error.message}",
                hint=error.hint,
            ) from None
