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
        if operator.due is not None:
            yield from _between(operator, marks, done + 1, batch)
        for one in operator.take(rows, marks[batch]):
            yield batch, one
        due = operator.due
        if due is not None and due <= marks[batch]:
            for one in operator.expire(marks[batch]):
                yield batch, one
        done = batch
    yield from _between(operator, marks, done + 1, len(marks))


def _between(operator: Driven, marks: Sequence[int], start: int, end: int) -> Iterator[tuple[int, Any]]:
    while (due := operator.due) is not None:
        batch = bisect_left(marks, due, start, end)
        if batch == end:
            return
        for one in operator.expire(marks[batch]):
            yield batch, one
        start = batch + 1
