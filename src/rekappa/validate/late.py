"""The inputs that production saw too late, from its recorded micro-batches and the archive.

Each micro-batch says which offsets it read and where the watermark stood. An event whose own time was behind
that watermark came late: a stateful operator may have dropped it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from rekappa.record import OFFSET, PARTITION, REGION, TOPIC
from rekappa.validate.explain import LATE_AT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rekappa.store.record import Batch


@dataclass(frozen=True, slots=True)
class Reading:
    """Offsets [start, end) of one partition, read while the watermark stood at `watermark`."""

    region: str
    topic: str
    partition: int
    start: int
    end: int
    watermark: datetime


def readings(batches: Iterable[Batch], source: str) -> list[Reading]:
    """What production read of a source, batch by batch, as far as its watermark is known."""
    found: list[Reading] = []
    before: dict[tuple[str, str, int], int] = {}
    for batch in sorted(batches, key=lambda one: one.number):
        for position in batch.positions:
            if position.source != source:
                continue
            for partition, end in position.ends.items():
                place = (position.region, position.topic, partition)
                start = before.get(place)
                # A partition that was not there before is read from its beginning.
                start = 0 if start is None and batch.number >= 0 and before else start
                if start is not None and end > start and batch.watermark is not None:
                    found.append(Reading(*place, start, end, batch.watermark))
                before[place] = end
    return found


def late_inputs(events: DataFrame, event_time: str, read: Sequence[Reading]) -> DataFrame | None:
    """The events that were behind the watermark of the micro-batch that read them; None if nothing is known."""
    if not read:
        return None
    from pyspark.sql import functions as F

    ddl = "r STRING, t STRING, p INT, low BIGINT, high BIGINT, watermark TIMESTAMP"
    rows = [(one.region, one.topic, one.partition, one.start, one.end, one.watermark) for one in read]
    known = F.broadcast(events.sparkSession.createDataFrame(rows, ddl))
    joined = events.join(
        known,
        (F.col(REGION) == F.col("r"))
        & (F.col(TOPIC) == F.col("t"))
        & (F.col(PARTITION) == F.col("p"))
        & (F.col(OFFSET) >= F.col("low"))
        & (F.col(OFFSET) < F.col("high"))
        & (F.col(event_time) < F.col("watermark")),
    )
    return joined.select(*events.columns, F.col(event_time).alias(LATE_AT))
