"""Times after a join of two streams: every time of either side has inputs of both sides behind it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from rekappa.plan.shape import ZERO, Span
from rekappa.spark.plans.ranges import TimeRange
from rekappa.spark.plans.times import Moment, Nested, Spread, Time, Times


def joined(found: TimeRange, left: Times, right: Times) -> Times:
    """The times of both sides, given the range that the join's condition sets between them."""
    times: Times = {}
    for key, time in left.items():
        times[key] = _across(time, found.left, found.right, found.low, found.high)
    for key, time in right.items():
        times[key] = _across(time, found.right, found.left, -found.high, -found.low)
    return times


def _across(own: Time, anchor: Moment, other: Moment, low: timedelta, high: timedelta) -> Time:
    """One side's time, given that the other side's anchor is [low, high] away from this side's."""
    if isinstance(own, Nested):
        # Which of its times is asked for, and so whether the join went by it, turns out later.
        reach = replace(own.reach, anchors=own.reach.anchors or anchor.span.anchors)
        return replace(own, reach=_near(reach, anchor.span, other.span, low, high))
    if isinstance(own, Spread):
        start, end = (_moved(one, anchor, other, low, high) for one in (own.start, own.end))
        return replace(own, start=start, end=end)
    return _moved(own, anchor, other, low, high)


def _moved(own: Moment, anchor: Moment, other: Moment, low: timedelta, high: timedelta) -> Moment:
    if own.base == anchor.base:
        reached = _reaching(own.span, other.span, low - own.offset, high - own.offset)
    else:
        reached = _near(own.span, anchor.span, other.span, low, high)
    return replace(own, span=reached)


def _near(own: Span, anchor: Span, other: Span, low: timedelta, high: timedelta) -> Span:
    """Two times of one row that are near the same inputs: the way to the anchor leads over those."""
    low, high = low - own.before.length - anchor.after.length, high + own.after.length + anchor.before.length
    reached = _reaching(own, other, low, high)
    known = reached.known and own.anchors == anchor.anchors
    return replace(reached, anchors=reached.anchors | anchor.anchors, known=known)


def _reaching(own: Span, other: Span, low: timedelta, high: timedelta) -> Span:
    before = other.before.plus(ZERO - low, "join range")
    after = other.after.plus(high, "join range")
    return own.covering(replace(other, before=before, after=after))
