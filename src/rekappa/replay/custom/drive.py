"""One key through all batches: its rows where it has any, what is due wherever the watermark has passed it.

    for batch, output in drive(operator, [(0, rows), (7, rows)], trace.marks): ...

What Spark does for all keys in each batch, this does for one key in all batches: first the key's rows, then what the
batch's watermark makes due. A batch without rows of the key matters only if something is due in it, so those between
are found by a search instead of being gone through.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol


class Driven(Protocol):
    """The state and the code of the key that is being driven. Times are in milliseconds."""

    def take(self, rows: Iterator[Any], watermark: int) -> Iterable[Any]:
        """Rows of one batch; what comes out. The rows may be left unread."""
        ...

    @property
    def due(self) -> int | None:
        """The lowest watermark at which something is to be done without rows; None if there is nothing to wait for."""
        ...

    def expire(self, watermark: int) -> Iterable[Any]:
        """Do what is due, once; what comes out. What becomes due by that waits for the next batch."""
        ...


def drive(
    operator: Driven, runs: Iterable[tuple[int, Iterator[Any]]], marks: Sequence[int]
) -> Iterator[tuple[int, Any]]:
    """What one key gives, and in which batch. `runs` are the batches in which it has rows, in order; `marks` is every
    batch's watermark, never falling."""
    done = -1
    for batch, rows in runs:
        due = operator.due  # asked here: what comes before a key's first rows may have set something
        while due is not None and (at := bisect_left(marks, due, done + 1, batch)) < batch:
            for one in operator.expire(marks[at]):
                yield at, one
            done, due = at, operator.due
        mark = marks[batch]
        for one in operator.take(rows, mark):
            yield batch, one
        due = operator.due
        if due is not None and due <= mark:
            for one in operator.expire(mark):
                yield batch, one
        done = batch
    due, end = operator.due, len(marks)
    while due is not None and (at := bisect_left(marks, due, done + 1, end)) < end:
        for one in operator.expire(marks[at]):
            yield at, one
        done, due = at, operator.due
