"""Bulk chunks: the window in stretches that one batch job each makes, so that a month is not one giant job."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from rekappa.errors import PlanError
from rekappa.plan.cut import clip
from rekappa.plan.model import Split
from rekappa.plan.plan import Chunk
from rekappa.timeline import EPOCH, Window

TARGET_ROWS = 50_000_000
TARGET_BYTES = 8 * 1024**3
MAX_STEPS = 10_000
_HOUR = timedelta(hours=1)


def plan_chunks(
    splits: Iterable[Split],
    *,
    window: Window,
    warm_up: timedelta,
    drain: timedelta,
    target_rows: int = TARGET_ROWS,
    target_bytes: int = TARGET_BYTES,
    align: timedelta = _HOUR,
) -> tuple[Chunk, ...]:
    """Chunks whose outputs tile the window exactly, in order, each reading its own warm-up and drain.

    A chunk takes as many steps of `align` (whole hours of the clock, unless told; several hours in a window of more
    than `MAX_STEPS` hours) as stay below both targets, and at least one. Every chunk pays for warm-up and drain anew,
    so none is shorter than both together, as far as the window allows. Rows are thought to be spread evenly over the
    time of their file.
    """
    if align <= timedelta() or target_rows < 1 or target_bytes < 1:
        raise PlanError(
            "Cannot cut the window into chunks of nothing", hint="Targets and alignment must be above zero."
        )
    steps = _steps(window, align)
    rows, sizes = _weights(splits, window, steps)
    shortest = warm_up + drain
    chunks: list[Chunk] = []
    start, taken_rows, taken_bytes = window.start, 0, 0
    for step, more_rows, more_bytes in zip(steps, rows, sizes, strict=True):
        full = taken_rows + more_rows > target_rows or taken_bytes + more_bytes > target_bytes
        if full and step.start > start and step.start - start >= shortest:
            chunks.append(_chunk(len(chunks), Window(start, step.start), warm_up, drain))
            start, taken_rows, taken_bytes = step.start, 0, 0
        taken_rows += more_rows
        taken_bytes += more_bytes
    chunks.append(_chunk(len(chunks), Window(start, window.end), warm_up, drain))
    return tuple(chunks)


def _chunk(number: int, output: Window, warm_up: timedelta, drain: timedelta) -> Chunk:
    return Chunk(number, output, output.widened(warm_up, drain))


def _steps(window: Window, align: timedelta) -> list[Window]:
    steps = []
    start = window.start
    align *= max(1, -(-window.length // (align * MAX_STEPS)))
    while start < window.end:
        end = min(window.end, EPOCH + ((start - EPOCH) // align + 1) * align)
        steps.append(Window(start, end))
        start = end
    return steps


def _weights(splits: Iterable[Split], window: Window, steps: list[Window]) -> tuple[list[int], list[int]]:
    """Rows and bytes of each step. Steps are of one length but for the first and last, so a split's are near."""
    rows, sizes = [0] * len(steps), [0] * len(steps)
    length = max(step.length for step in steps)
    for split in splits:
        if not window.overlaps(split.low, split.high):
            continue
        # The first step may be short: begin one early and let clip() say what is there.
        first = max(0, (split.low - window.start) // length)
        for number in range(first, len(steps)):
            if steps[number].start > split.high:
                break
            part = clip(split, steps[number])
            if part is not None:
                rows[number] += part.rows
                sizes[number] += part.bytes
    return rows, sizes


def whole_hours(reads: Window) -> Window:
    """The stretch widened to whole hours of the clock.

    The archive is partitioned by the hour: a filter on whole hours is answered by the partitions alone, so no
    row is compared and Iceberg can read columns in vectors. What is read too much is held back with the rest.
    """
    first = (reads.start - EPOCH) // _HOUR * _HOUR
    last = -(-(reads.end - EPOCH) // _HOUR) * _HOUR
    return Window(EPOCH + first, EPOCH + last)
