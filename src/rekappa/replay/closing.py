"""The checkpoint of a replay: how far it is, and the batches that close it.

Spark's watermark follows the data, so at the end of the data the last windows, joins and timers stay open. After the
last slice the source answers two more offsets, marked as closed, which read nothing, and moves the watermark just
before Spark logs each batch: Spark runs it like any other and lets state go. The first, `SETTLED`, moves it as far as
all events are known to have been read: what comes out is final. The second, `FORCED`, moves it past everything: what
comes out could still have changed, had more been read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.errors import RunError
from rekappa.spark import private
from rekappa.spark.offsetlog import last_committed, last_planned, read_batch
from rekappa.storage.location import Location
from rekappa.timeline import EPOCH

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

SLICE, CLOSED = "slice", "closed"
"""What the offsets of a replay are made of."""
SETTLED, FORCED = 1, 2
"""The batches that close a replay, by what `CLOSED` is in their offsets."""
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a checkpoint is. `slices` counts those that the newest logged batch reads up to."""

    planned: int | None
    committed: int | None
    slices: int
    watermark: datetime | None

    @property
    def settled(self) -> bool:
        """Every batch that was begun has been committed."""
        return self.planned == self.committed


def reached(checkpoint: Location) -> Reached:
    """What the checkpoint's logs say; all sources of a replay must stand at the same slice."""
    planned = last_planned(checkpoint)
    if planned is None:
        return Reached(None, None, 0, None)
    batch = read_batch(checkpoint, planned)
    slices = {json.loads(line)[SLICE] for line in batch.sources if line is not None}
    if len(slices) != 1 or None in batch.sources:
        raise RunError(
            f"Cannot continue from checkpoint {checkpoint}: its sources stand at different slices {sorted(slices)}",
            hint="Start the backfill again: this checkpoint was changed by something else.",
        )
    return Reached(planned, last_committed(checkpoint), slices.pop(), batch.watermark)


def move_watermark(query: StreamingQuery, watermark: datetime) -> datetime | None:
    """Give the next batch of a running query at least this watermark. Answers the one that the data gave it, if any."""
    before = private.move_watermark(query, (watermark - EPOCH) // _MILLISECOND)
    return EPOCH + before * _MILLISECOND if before else None


def set_watermark(query: StreamingQuery, watermark: datetime) -> None:
    """Give the next batch of a running query exactly this watermark, whatever the data says."""
    private.set_watermark(query, (watermark - EPOCH) // _MILLISECOND)
