"""The watermark that each micro-batch of a replay would have, without running them.

    trace([{"w1": 60_000}, {}, {"w1": 120_000}], {"w1": 10_000}).marks   # (0, 50_000, 50_000)

A batch's watermark follows from the batches before it: the highest event time that each watermark operator has seen,
less its delay; of several operators the one that is furthest behind; never backwards. All in milliseconds since 1970,
as Spark counts; 0 is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise


class Policy(StrEnum):
    """Which of several watermarks holds for the query."""

    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Trace:
    """`marks[n]` is the watermark of batch n: timers up to it fire there. `closing` of the batches have no rows: they
    come after the last slice and let state go, as those of ordered mode do. Rows are late by the watermark of the batch
    before, or, if a query may have one stateful operator only, by their own batch's (`late_at_once`)."""

    marks: tuple[int, ...]
    closing: int = 0
    late_at_once: bool = False

    @property
    def slices(self) -> int:
        return len(self.marks) - self.closing

    @property
    def late(self) -> tuple[int, ...]:
        """The watermark up to which rows of each slice are late."""
        return (self.marks if self.late_at_once else (0, *self.marks[:-1]))[: self.slices]

    @property
    def rising(self) -> bool:
        return all(one <= other for one, other in pairwise(self.marks))


def trace(
    maxima: Sequence[Mapping[str, int]],
    delays: Mapping[str, int],
    *,
    recorded: Sequence[int | None] = (),
    closing: Sequence[int | None] = (),
    policy: Policy = Policy.MIN,
) -> Trace:
    """The watermark of every batch.

    `maxima` has for each slice the highest event time that each watermark operator saw in it, operators without rows
    left out; `delays` has every operator of the query. `recorded` are the watermarks that production's batches had,
    which hold where there are any. `closing` are the watermarks to move to at the end; None leaves it where it is.
    """
    chosen = min if policy is Policy.MIN else max
    seen: dict[str, int | None] = dict.fromkeys(delays)
    now, marks = 0, []
    for number, found in enumerate(maxima):
        told = recorded[number] if number < len(recorded) else None
        now = now if told is None else told
        marks.append(now)
        for operator, highest in found.items():
            before = seen[operator]
            reached = highest - delays[operator]
            seen[operator] = reached if before is None else max(before, reached)
        if seen:
            now = max(now, chosen(value or 0 for value in seen.values()))
    for target in closing:
        now = max(now, target or 0)
        marks.append(now)
    return Trace(tuple(marks), len(closing))
