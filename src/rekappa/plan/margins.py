"""How much to read before and after the window, and why.

The window is a stretch of the sink's event time; what is read is a stretch of ingestion time. Take a row whose
sink time t lies in [start, end). Its inputs have event times in [t - before, t + after] (the shape's span). An event
is ingested at most `ahead` before its own time (clocks disagree; a scheduled time is ahead by nature) and, if it is
not late, no later than the watermark's delay after it. So everything behind the window's output is ingested in

    [start - before - ahead, end + after + delay)

which is the window with a warm-up of `before + ahead` and a drain of `after + delay`. What the warm-up and the drain
make besides has a sink time outside the window, and is held back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta

from rekappa.errors import PlanError
from rekappa.plan.shape import ZERO, Operation, Shape
from rekappa.timeline import Window, format_duration

CUSTOM_MARGIN = timedelta(hours=1)
"""Warm-up and drain of a job with custom state, which shows neither how far back it looks nor when it ends."""
CLOCKS = "for clocks that are ahead"
TOLD = "as told"
_GUESSED = "Give --warm-up and --drain at least as long as the state lives."


@dataclass(frozen=True, slots=True)
class Margins:
    """What to read around the window.

    `before` and `after` are the reach of the output in event time, `ahead` and `delay` how far ingestion may be from
    it: the warm-up is `before + ahead`, the drain `after + delay` unless told. `retention` is how long a row is held in
    state, None if nothing ends it. `timed` is False where no sink declares an event time: the window is then ingestion
    time, and there is nothing to read around it. `untraced` says which output's time has no known column behind it.
    `open_before` and `open_after` say that nothing bounds what a row may need on that side: sessions, custom state;
    `cut_off` is what to say of sessions that began before the warm-up.
    `vouched` is False where the window's rows may lack inputs: the margins were told shorter than derived, or nothing
    bounds what lies before and nobody said how far back that goes.
    """

    before: timedelta = ZERO
    before_reason: str = ""
    ahead: timedelta = ZERO
    ahead_reason: str = CLOCKS
    after: timedelta = ZERO
    delay: timedelta = ZERO
    drain: timedelta = ZERO
    drain_reason: str = ""
    notes: tuple[str, ...] = ()
    cut_off: tuple[str, ...] = ()
    retention: timedelta | None = ZERO
    timed: bool = True
    untraced: str = ""
    open_before: bool = False
    open_after: bool = False
    vouched: bool = True

    @property
    def warm_up(self) -> timedelta:
        return self.before + self.ahead

    @property
    def warm_up_reason(self) -> str:
        if not self.ahead:
            return self.before_reason
        clocks = f"{format_duration(self.ahead)} {self.ahead_reason}"
        return f"{self.before_reason} + {clocks}" if self.before else clocks

    def reads(self, output: Window) -> Window:
        """The ingestion times to read for this output."""
        return output.widened(self.warm_up, self.drain)

    def reaching_back(self, before: timedelta, reason: str) -> Margins:
        """With all that lies before its rows known to be read, though the query does not bound it."""
        whole = self.drain >= self.after + self.delay
        return replace(self, before=before, before_reason=reason, cut_off=(), vouched=whole)

    def measured(self, before: timedelta, reason: str, doubt: str = "") -> Margins:
        """With a warm-up that the archive's own events showed to be long enough, unless there is a `doubt`."""
        others = [note for note in self.notes if not note.endswith(_GUESSED)]
        ends = f"When custom state ends can't be derived: the drain of {format_duration(self.drain)} is a default."
        notes = (*others, *([ends] if self.drain_reason != TOLD else []), *([doubt] if doubt else []))
        reached = self.reaching_back(before, reason)
        return replace(reached, notes=notes, vouched=reached.vouched and not doubt)

    def wanted(self, output: Window) -> Window:
        """The event times that inputs of this output can have."""
        return output.widened(self.before, self.after)


def derive(shapes: Iterable[Shape], lateness: timedelta, ahead: timedelta = ZERO) -> Margins:
    """The margins of a job: the widest that any of its outputs needs.

    `lateness` is allowed to events of a job that sets no watermark, `ahead` to events that come before their time.
    """
    found = [_of_one(shape, lateness, ahead) for shape in shapes]
    warm, last = max(found, key=lambda one: one.before), max(found, key=lambda one: one.drain)
    lengths = [one.retention for one in found]
    return Margins(
        before=warm.before,
        before_reason=warm.before_reason,
        ahead=max(one.ahead for one in found),
        after=max(one.after for one in found),
        delay=max(one.delay for one in found),
        drain=last.drain,
        drain_reason=last.drain_reason,
        notes=tuple(dict.fromkeys(note for one in found for note in one.notes)),
        cut_off=tuple(dict.fromkeys(note for one in found for note in one.cut_off)),
        retention=None if None in lengths else max((one for one in lengths if one is not None), default=ZERO),
        timed=any(one.timed for one in found),
        untraced=next((one.untraced for one in found if one.untraced), ""),
        open_before=any(one.open_before for one in found),
        open_after=any(one.open_after for one in found),
        vouched=not any(one.open_before for one in found),
    )


def with_overrides(margins: Margins, warm_up: timedelta | None, drain: timedelta | None) -> Margins:
    """The margins as told by the user, who is told in turn when they are shorter than what was derived.

    A warm-up that is told takes the place of what the query reaches back; the clocks' margin is read besides. Refuses
    what can be neither derived nor was told.
    """
    if margins.untraced and (warm_up is None or drain is None):
        raise PlanError(
            f"Cannot tell what to read: {margins.untraced}",
            hint="Say with --warm-up and --drain how far the inputs' ingestion may lie before and after that time, or "
            "take it from a column of a source.",
        )
    notes = list(margins.notes)
    if warm_up is not None and warm_up < margins.before:
        notes.append(
            f"The warm-up of {format_duration(warm_up)} is shorter than the derived {format_duration(margins.before)} "
            f"({margins.before_reason}): the first rows of the window may lack inputs."
        )
    if drain is not None and drain < margins.drain:
        notes.append(
            f"The drain of {format_duration(drain)} is shorter than the derived {format_duration(margins.drain)} "
            f"({margins.drain_reason}): the last rows of the window may not be final."
        )
    short = len(notes) > len(margins.notes)
    vouched = not short and (warm_up is not None or margins.vouched)
    told = replace(margins, notes=tuple(notes), vouched=vouched)
    if warm_up is not None:
        told = replace(told, before=warm_up, before_reason=f"{format_duration(warm_up)} as told")
    if drain is not None:
        told = replace(told, drain=drain, drain_reason=TOLD)
    return told


def _of_one(shape: Shape, lateness: timedelta, ahead: timedelta) -> Margins:
    if shape.event_time is None:
        reason = "the sink declares no event time, so the window is ingestion time"
        return Margins(before_reason=reason, drain_reason=reason, timed=False)
    delay = shape.delay if shape.delay is not None else lateness
    late = "watermark" if shape.delay is not None else "for late events (max_misalignment; the job sets no watermark)"
    before, before_why, after, after_why, notes = _reaches(shape)
    if shape.has(Operation.DEDUP_WITHIN):
        # A key is dropped once the watermark, itself `delay` behind, is `delay` past it.
        before, before_why = before + 2 * delay, [*before_why, f"{format_duration(2 * delay)} that a key is remembered"]
    drain_why = [*after_why, f"{format_duration(delay)} {late}"] if delay > ZERO else after_why
    drain = after + delay
    retention = before + drain if shape.stateful else ZERO
    unbounded = shape.span is None or shape.has(Operation.CUSTOM)
    return Margins(
        before=before,
        before_reason=" + ".join(before_why) or "no row needs an event from before its own time",
        ahead=ahead,
        after=after,
        delay=delay,
        drain=drain,
        drain_reason=" + ".join(drain_why) or "no row needs an event from after its own time",
        notes=tuple(notes),
        cut_off=_cut_off(shape),
        retention=None
        if shape.has(Operation.AGGREGATE, Operation.OPEN_JOIN, Operation.OPEN_DEDUP, Operation.CUSTOM)
        else retention,
        untraced=_untraced(shape),
        open_before=unbounded or (shape.span is not None and shape.span.before.open),
        open_after=unbounded or (shape.span is not None and shape.span.after.open),
    )


def _untraced(shape: Shape) -> str:
    if shape.span is not None or shape.has(Operation.CUSTOM):
        return ""
    return (
        f"the event time of output {shape.output!r} ({shape.event_time}) can't be traced to a column of a source by "
        "which the job's windows and joins go too, so how far its inputs lie from it is not known"
    )


def _cut_off(shape: Shape) -> tuple[str, ...]:
    if shape.has(Operation.CUSTOM) or shape.span is None or not shape.span.before.open:
        return ()
    return (
        f"Sessions of output {shape.output!r} that began more than {format_duration(shape.span.before.length)} before "
        "they end would be cut off: a longer --warm-up covers them.",
    )


def _reaches(shape: Shape) -> tuple[timedelta, list[str], timedelta, list[str], list[str]]:
    """Before and after in event time, with their reasons, and what the user should know."""
    if shape.has(Operation.CUSTOM):
        margin = max(CUSTOM_MARGIN, 4 * (shape.delay or ZERO)) + shape.lengths
        why = [f"{format_duration(margin)} for custom state"]
        note = (
            f"Output {shape.output!r} keeps custom state: its margins can't be derived, {format_duration(margin)} is a "
            f"default. {_GUESSED}"
        )
        return margin, why, margin, list(why), [note]
    if shape.span is None:
        why = [f"{format_duration(shape.lengths)} of windows and ranges"] if shape.lengths else []
        return shape.lengths, why, shape.lengths, list(why), []
    notes = []
    before, after = shape.span.before, shape.span.after
    if after.open:
        notes.append(
            f"Sessions of output {shape.output!r} still open {format_duration(after.length)} after the window's end "
            "are not final: a longer --drain covers them."
        )
    return before.clamped, list(before.why), after.clamped, list(after.why), notes
