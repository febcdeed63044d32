"""Which point a rewind goes back to. Pure.

choose("plays", points, ToTime(moment))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rekappa.checkpoints.points import nearest
from rekappa.checkpoints.restarts import Restart
from rekappa.errors import RunError
from rekappa.plan.offsets import Position
from rekappa.recovery.graph import Limits, before
from rekappa.timeline import format_instant, parse_instant


@dataclass(frozen=True, slots=True)
class ToTime:
    """The last batch that was committed at or before a moment."""

    moment: datetime


@dataclass(frozen=True, slots=True)
class ToBatch:
    number: int


@dataclass(frozen=True, slots=True)
class ToSavepoint:
    name: str


@dataclass(frozen=True, slots=True)
class ToNewest:
    """The last committed batch: go on from here, with other code."""


@dataclass(frozen=True, slots=True)
class NoState:
    """From the beginning of the sources."""


Wanted = ToTime | ToBatch | ToSavepoint | ToNewest | NoState


def parse_to(text: str) -> ToTime | ToBatch:
    """What `--to` says: a batch's number, or a moment."""
    if text.strip().isdigit():
        return ToBatch(int(text))
    try:
        return ToTime(parse_instant(text))
    except ValueError as error:
        hint = "Write a batch's number, or a time like 2026-11-01T13:00Z."
        raise RunError(f"Cannot rewind to {text!r}: {error}", hint=hint) from None


def choose(query: str, known: Sequence[Restart], wanted: ToTime | ToBatch | ToSavepoint | ToNewest) -> Restart:
    """The point of the query that is meant; refuses where it can't be restored, naming what it lacks and what can."""
    there = [one for one in known if one.point.restorable]
    match wanted:
        case ToBatch(number):
            return _batch(query, known, number)
        case ToSavepoint(name):
            fitting = [one for one in there if one.savepoint == name]
            lost = f"savepoint {name!r} holds no batch of it that counts, or one that can't be restored"
        case ToTime(moment):
            fitting = [one for one in there if one.point.committed <= moment]
            lost = f"none of its batches that can be restored was committed by {format_instant(moment)}"
        case ToNewest():
            fitting = there
            lost = "none of its batches can be restored"
    if not fitting:
        raise RunError(f"Cannot rewind query {query!r}: {lost}", hint=_around(there[:1]))
    # Of one batch that is kept twice, the run's own.
    return max(fitting, key=lambda one: (one.point.batch, one.savepoint is None))


def choose_before(
    known: Sequence[Restart],
    newest: Restart,
    limits: Limits,
    ends: Callable[[Restart], Mapping[Position, int]],
) -> Restart | None:
    """The last point up to `newest` that has read nothing that is abandoned; None if only the beginning has not.

    `ends` says how far a point has read.
    """
    earlier = [one for one in known if one.point.restorable and one.point.batch <= newest.point.batch]
    # Later batches have read at least as much: the first that fits, from the newest on, is the last.
    for one in (newest, *sorted(earlier, key=lambda one: (-one.point.batch, one.savepoint is not None))):
        if before(limits, ends(one), one.point.committed):
            return one
    return None


def _batch(query: str, known: Sequence[Restart], number: int) -> Restart:
    same = [one for one in known if one.point.batch == number]
    whole = next((one for one in same if one.point.restorable), None)
    if whole is not None:
        return whole
    near = nearest([one.point for one in known], number)
    why = (
        f"it lacks {', '.join(same[0].point.lacking[:3])}" if same else "there is no such batch among those that count"
    )
    around = [one for one in known if one.point in near]
    raise RunError(f"Cannot rewind query {query!r} to batch {number}: {why}", hint=_around(around))


def _around(points: Sequence[Restart]) -> str:
    if not points:
        return "No batch can be restored: --no-state begins anew; `rekappa checkpoints` says what they lack."
    shown = dict.fromkeys(f"{one.point.batch} (committed {format_instant(one.point.committed)})" for one in points)
    return f"The nearest that can be restored: {', '.join(shown)}. `rekappa checkpoints` lists them all."
