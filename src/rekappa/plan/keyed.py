"""Sinks that keep one row per key: what each mode can know of the row that production is left with."""

from __future__ import annotations

from rekappa.plan.plan import Mode
from rekappa.plan.shape import Keeps, Shape


def objection(shape: Shape, mode: Mode) -> str | None:
    """Why a mode can't tell the last row of a key as production had it; None if it can."""
    taken = shape.taken
    if mode is Mode.EXACT or taken.keeps is Keeps.EVERY:
        return None
    if taken.updates and shape.revised.decide:
        return (
            "it writes only some of an aggregate's versions, chosen by what the aggregate computes, so what its sink "
            "is left with depends on production's micro-batches"
        )
    if taken.updates and (moving := [name for name in taken.key if name in shape.revised.columns]):
        return (
            f"the key of its sink ({', '.join(moving)}) is what an aggregate computes: old keys stay behind, and which "
            "depends on production's micro-batches"
        )
    if mode is Mode.BULK and shape.stateful and shape.event_time is None:
        return "its sink declares no event time, so only micro-batches tell which keys were written in the window"
    if mode in (Mode.BULK, Mode.ORDERED) and not shape.stateful and taken.keeps is Keeps.LAST:
        return f"a key of its sink may come several times, and {mode} mode does not keep the order that tells the last"
    return None


def remarks(job: str, shape: Shape) -> list[str]:
    """What the person should know of an output that goes by key alone."""
    if not (shape.taken.updates and shape.stateful and shape.event_time is None):
        return []
    return [
        f"Output {shape.output!r} of job {job!r} has no event time: what is made anew is the last version, at the "
        "window's end, of every key written in the window. Let the window end where production stands now: a key that "
        "production has written since would be put back."
    ]
