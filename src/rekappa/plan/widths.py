"""How wide production's micro-batches were: a replay in narrower ones would drop events that production took in.

A watermark moves between micro-batches only. The wider a batch, the longer a late event in it finds its window open.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from rekappa.timeline import Window

_BEGINNING = datetime(1970, 1, 2, tzinfo=UTC)
"""Spark's watermark before it has seen an event is 1970."""


def widest_batch(
    watermarks: Sequence[datetime | None], reads: Window, delay: timedelta, earliest: datetime, newest: datetime
) -> timedelta:
    """The most time that any micro-batch around `reads` moved production on by; zero if it had no watermark.

    `watermarks` are those that the batches ran with, in their order: what a batch read shows in the next one's. The
    first batch began with what the archive has from `earliest` on; the last one read up to `newest` at most. The
    watermark is `delay` behind the newest event of its batch.
    """
    marks = [moment for moment in watermarks if moment is not None]
    if not marks:
        return timedelta()
    ends = [moment + delay if moment > _BEGINNING else earliest for moment in marks]
    ends.append(max(newest, ends[-1]))
    return max(
        (
            min(after, reads.end) - max(before, reads.start)
            for before, after in pairwise(ends)
            if after > reads.start and before < reads.end
        ),
        default=timedelta(),
    )
