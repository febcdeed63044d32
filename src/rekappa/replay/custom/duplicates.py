"""De-duplication in slice order: of the rows with one key, those that Spark's micro-batches would have let through.

The first row of a key passes, and what comes while the key is known is dropped. Within the watermark a key is known
until the watermark has reached the time of the row that passed, plus the delay; else for as long as the replay lasts:
what is forgotten by event time would be late, and is dropped as that before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def first_rows(runs: Iterable[tuple[Any, int, int]], marks: Sequence[int], lasts: int | None = None) -> Iterator[bool]:
    """Whether each row passes. `runs` are key, batch and event time (microseconds) of each row, sorted by key, then
    batch; `lasts` is the delay (microseconds) for which a key is known, None for ever."""
    current: Any = object()
    until: int | None = None
    since = -1
    known = False
    for key, batch, moment in runs:
        if key != current:
            current, known = key, False
        elif known and until is not None and batch > since and marks[batch - 1] * 1000 >= until:
            # What was due at the end of a batch before this one is gone.
            known = False
        passes = not known
        if passes:
            known, since = True, batch
            until = None if lasts is None else moment + lasts
        yield passes
