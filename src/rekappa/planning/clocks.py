"""What the archive shows of clocks: how far event times are from ingestion, and margins that fit it.

The columns that output times are read from (*anchors*) decide. For the source's own `event_time` the warm-up grows as
far as events were ahead, and what is later than the drain is said. Any other column (an expiry, a day) is at whatever
distance the archive shows: warm-up and drain both grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING

from rekappa.errors import PlanError
from rekappa.plan.margins import Margins
from rekappa.plan.outside import Demand, Outside, Piece, by_window, outside
from rekappa.plan.words import count
from rekappa.timeline import Window, format_duration

if TYPE_CHECKING:
    from pyiceberg.table import Table

_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Clock:
    """One anchor of a source; `own` if it is the source's `event_time`. `files` may hold what the window needs,
    `groups` are the row groups of one, `look` answers the truth about one group."""

    source: str
    column: str
    own: bool
    files: tuple[Piece, ...]
    groups: Callable[[Piece], Sequence[Piece]]
    look: Callable[[Piece, Demand], Outside]

    def outside(self, wanted: Window, reads: Window) -> Outside:
        demand = Demand.of(wanted, reads)
        return outside(self.files, demand, self.groups, lambda part: self.look(part, demand))


@dataclass(frozen=True, slots=True)
class Told:
    """What the user said of margins, which is not grown."""

    clock_skew: timedelta | None = None
    drain: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Fitted:
    """Margins that take in what the window's output needs, the outputs they were fitted to, and what to say.

    `complete` is False where events that the outputs need are not read, or can't be ruled out.
    """

    margins: Margins
    outputs: tuple[Window, ...]
    notes: tuple[str, ...] = ()
    complete: bool = True


def clock(
    table: Table,
    source: str,
    column: str,
    own: bool,
    wanted: Window,
    regions: Sequence[str],
    time_zone: str,
    told: Told,
    files: Sequence[Piece] | None = None,
) -> Clock | str:
    """The anchor with its files, which are looked for if not given; words instead, for a column that can't be measured.
    Refuses one that is not the source's own event time and of which nothing was told either."""
    from rekappa.iceberg.times import ColumnTimes

    times = ColumnTimes(table, column, time_zone)
    if times.measured:
        known = times.files(wanted, regions) if files is None else files
        return Clock(source, column, own, tuple(known), cache(times.groups), times.look)
    said = f"how far {column!r} of source {source!r} is from ingestion time can't be measured, it is a {times.kind}"
    if not own and (told.clock_skew is None or told.drain is None):
        raise PlanError(
            f"Cannot tell what to read: {said}",
            hint="Say with --clock-skew how far it may be ahead of ingestion, and with --drain how far behind.",
        )
    return f"Not checked: {said}."


def fitted(
    margins: Margins,
    clocks: Iterable[Clock],
    outputs: Callable[[Margins], Sequence[Window]],
    told: Told,
    read: Callable[[Window], Window] = lambda reads: reads,
) -> Fitted:
    """Margins grown until every event that the outputs need is read, or the user's word is reached.

    `outputs` are the stretches of output that each read for themselves, given the margins: growing margins may change
    them. `read` is what is really read for a stretch, which may be more. Every round makes a margin longer, and none
    longer than the archive is.
    """
    known = tuple(clocks)
    while True:
        parts = tuple(outputs(margins))
        found = [(one, _all(one, margins, parts, read)) for one in known]
        grown = margins
        for one, (missed, ahead, drain) in found:
            if told.clock_skew is None and missed.early and ahead > grown.ahead:
                reason = f"for event times up to {_length(missed.ahead, missed)} ahead of ingestion"
                grown = replace(grown, ahead=ahead, ahead_reason=reason)
            if told.drain is None and not one.own and missed.late and drain > grown.drain:
                reason = f"{one.column} of source {one.source!r} up to {_length(missed.behind, missed)} behind"
                behind = max(grown.delay, drain - grown.after)
                grown = replace(grown, drain=drain, drain_reason=f"{reason} ingestion", delay=behind)
        if grown == margins:
            break
        margins = grown
    notes = [note for one, (missed, ahead, drain) in found for note in _notes(one, missed, ahead, drain, margins)]
    return Fitted(margins, parts, tuple(notes), complete=not notes)


def _all(
    one: Clock, margins: Margins, outputs: Sequence[Window], read: Callable[[Window], Window]
) -> tuple[Outside, timedelta, timedelta]:
    """What lies outside, over all outputs, and the margins that would read it."""
    total, ahead, drain = Outside(), margins.ahead, margins.drain
    wanted = [margins.wanted(output) for output in outputs]
    for output, own, files in zip(outputs, wanted, by_window(one.files, wanted), strict=True):
        reads = margins.reads(output)
        missed = replace(one, files=files).outside(own, read(reads))
        total = total.plus(missed)
        ahead = max(ahead, _up(margins.ahead + missed.before(reads)) if missed.early else ahead)
        drain = max(drain, _up(margins.drain + missed.after(reads)) if missed.late else drain)
    return total, ahead, drain


def _notes(one: Clock, missed: Outside, ahead: timedelta, drain: timedelta, margins: Margins) -> list[str]:
    notes = []
    several = "" if missed.exact else "Up to "
    if missed.early:
        notes.append(
            f"{several}{count(missed.early)} events of source {one.source!r} have {one.column!r} ahead of their "
            f"ingestion by up to {_length(missed.ahead, missed)}, more than the clock skew of "
            f"{format_duration(margins.ahead)}, and are not read: --clock-skew '{format_duration(ahead)}' reads them."
        )
    if missed.late:
        notes.append(
            f"{several}{count(missed.late)} late events of source {one.source!r}, ingested up to "
            f"{_length(missed.behind, missed)} after they happened, come after what is read: "
            f"--drain '{format_duration(drain)}' reads them."
        )
    return notes


def _length(value: int, missed: Outside) -> str:
    """A measured distance in words, whole seconds; one that the bounds of files allow is said to be at most that."""
    seconds = timedelta(seconds=-(-value // 1_000_000))
    return format_duration(seconds) if missed.exact else f"at most {format_duration(seconds)}"


def _up(value: timedelta) -> timedelta:
    return -(-value // _MINUTE) * _MINUTE
