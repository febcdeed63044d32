"""How much to read before and after the window, and why.

The window is a stretch of the sink's event time; what is read is a stretch of ingestion time. Take a row whose
sink time t lies in [start, end). Its inputs have event times in [t - before, t + after] (the shape's span), and
an event is ingested no earlier than it happened and, if it is not late, no later than the watermark's delay
after. So everything behind the window's output is ingested in

    [start - before, end + after + delay)

which is the window with a warm-up of `before` and a drain of `after + delay`. What the warm-up and the drain
make besides has a sink time outside the window, and is held back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from rekappa.plan.shape import ZERO, Kind, Shape
from rekappa.timeline import format_duration

CUSTOM_MARGIN = timedelta(hours=1)
"""Warm-up and drain of a job with custom state, which shows neither how far back it looks nor when it ends."""


@dataclass(frozen=True, slots=True)
class Margins:
    """`retention` is how long a row is held in state, None if nothing ends it."""

    warm_up: timedelta
    warm_up_reason: str
    drain: timedelta
    drain_reason: str
    notes: tuple[str, ...] = ()
    retention: timedelta | None = ZERO


def derive(shapes: Iterable[Shape], lateness: timedelta) -> Margins:
    """The margins of a job: the widest that any of its outputs needs.

    `lateness` is allowed to events of a job that sets no watermark.
    """
    found = [_of_one(shape, lateness) for shape in shapes]
    warm, last = max(found, key=lambda one: one.warm_up), max(found, key=lambda one: one.drain)
    notes = tuple(dict.fromkeys(note for one in found for note in one.notes))
    lengths = [one.retention for one in found]
    retention = None if None in lengths else max((length for length in lengths if length is not None), default=ZERO)
    return Margins(warm.warm_up, warm.warm_up_reason, last.drain, last.drain_reason, notes, retention)


def with_overrides(margins: Margins, warm_up: timedelta | None, drain: timedelta | None) -> Margins:
    """The margins as told by the user, who is told in turn when they are shorter than what was derived."""
    notes = list(margins.notes)
    if warm_up is not None and warm_up < margins.warm_up:
        notes.append(
            f"The warm-up of {format_duration(warm_up)} is shorter than the derived {format_duration(margins.warm_up)} "
            f"({margins.warm_up_reason}): the first rows of the window may lack inputs."
        )
    if drain is not None and drain < margins.drain:
        notes.append(
            f"The drain of {format_duration(drain)} is shorter than the derived {format_duration(margins.drain)} "
            f"({margins.drain_reason}): the last rows of the window may not be final."
        )
    return Margins(
        margins.warm_up if warm_up is None else warm_up,
        margins.warm_up_reason if warm_up is None else "as told",
        margins.drain if drain is None else drain,
        margins.drain_reason if drain is None else "as told",
        tuple(notes),
        margins.retention,
    )


def _of_one(shape: Shape, lateness: timedelta) -> Margins:
    if shape.event_time is None:
        reason = "the sink declares no event time, so the window is ingestion time"
        return Margins(ZERO, reason, ZERO, reason)
    delay = shape.delay if shape.delay is not None else lateness
    late = "watermark" if shape.delay is not None else "for late events (max_misalignment; the job sets no watermark)"
    before, before_why, after, after_why, notes = _reaches(shape)
    if shape.has(Kind.DEDUP_WITHIN):
        # A key is dropped once the watermark, itself `delay` behind, is `delay` past it.
        before, before_why = before + 2 * delay, [*before_why, f"{format_duration(2 * delay)} that a key is remembered"]
    if delay > ZERO:
        after, after_why = after + delay, [*after_why, f"{format_duration(delay)} {late}"]
    retention = before + after if shape.stateful else ZERO
    return Margins(
        warm_up=before,
        warm_up_reason=" + ".join(before_why) or "no row needs an event from before its own time",
        drain=after,
        drain_reason=" + ".join(after_why) or "no row needs an event from after its own time",
        notes=tuple(notes),
        retention=None if shape.has(Kind.AGGREGATE, Kind.OPEN_JOIN, Kind.OPEN_DEDUP, Kind.CUSTOM) else retention,
    )


def _reaches(shape: Shape) -> tuple[timedelta, list[str], timedelta, list[str], list[str]]:
    """Before and after in event time, with their reasons, and what the user should know."""
    if shape.has(Kind.CUSTOM):
        margin = max(CUSTOM_MARGIN, 4 * (shape.delay or ZERO)) + shape.lengths
        why = [f"{format_duration(margin)} for custom state"]
        note = (
            f"Output {shape.output!r} keeps custom state: its margins can't be derived, {format_duration(margin)} is a "
            "default. Give --warm-up and --drain at least as long as the state lives."
        )
        return margin, why, margin, list(why), [note]
    if shape.span is None:
        note = (
            f"The event time of output {shape.output!r} ({shape.event_time}) can't be traced to the sources' event "
            "times; it is taken to lie within the query's windows and ranges of them."
        )
        why = [f"{format_duration(shape.lengths)} of windows and ranges"] if shape.lengths else []
        return shape.lengths, why, shape.lengths, list(why), [note]
    notes = []
    before, after = shape.span.before, shape.span.after
    if before.open:
        notes.append(
            f"Sessions of output {shape.output!r} that began more than {format_duration(before.length)} before they "
            "end would be cut off: a longer --warm-up covers them."
        )
    if after.open:
        notes.append(
            f"Sessions of output {shape.output!r} still open {format_duration(after.length)} after the window's end "
            "are not final: a longer --drain covers them."
        )
    return before.clamped, list(before.why), after.clamped, list(after.why), notes
