"""Times as files write them.

    read_moment("2013-11-03 06:00", TimeReading(zone="America/New_York"))

Without a format these are read: ISO 8601 with an offset or Z, the same followed by a zone's name, the same with
neither (a wall clock's time in the clock's zone), a date alone (its midnight), and numbers since 1970 in seconds,
milli-, micro- or nanoseconds. Which of these a number is, its size says: the years 1973 to 5138 do not overlap. A
number outside of them needs a format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_FLOOR, Decimal, InvalidOperation
from typing import Any

from rekappa.produce.written import told
from rekappa.timeline import EPOCH, in_zone, parse_instant

EPOCHS = {"epoch-s": Decimal(10**6), "epoch-ms": Decimal(1000), "epoch-us": Decimal(1), "epoch-ns": Decimal("0.001")}
"""How many microseconds one of them is."""
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?$")
_BASIC_DATE = re.compile(r"\d{8}$")
_FROM, _STEP = Decimal(10**8), 1000


@dataclass(frozen=True, slots=True)
class TimeReading:
    """How the times of one column are written: a pattern of `strptime` or one of `EPOCHS`; None for the usual ways.

    `zone` is where the clock hangs that showed times without offset or zone.
    """

    format: str | None = None
    zone: str = "UTC"


def read_moment(value: Any, clock: TimeReading) -> datetime:
    """The instant, in UTC; raises `ValueError` that says what is wrong with the value."""
    try:
        return _read(value, clock)
    except OverflowError:
        raise ValueError(f"{told(value)} is outside the years 1 to 9999") from None


def wall_clock(value: Any, clock: TimeReading) -> datetime:
    """A time without zone, as it is written; an instant is what the clock's zone showed then."""
    if isinstance(value, str):
        try:
            written = datetime.fromisoformat(value.strip())
            if written.tzinfo is None and clock.format is None:
                return written
        except ValueError:
            pass
    if isinstance(value, datetime) and value.tzinfo is None:
        return value
    from zoneinfo import ZoneInfo

    return read_moment(value, clock).astimezone(ZoneInfo(clock.zone)).replace(tzinfo=None)


def _read(value: Any, clock: TimeReading) -> datetime:
    if isinstance(value, datetime):
        return _placed(value, clock, str(value))
    if isinstance(value, date):
        return _placed(datetime(value.year, value.month, value.day), clock, str(value))
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return _since_1970(Decimal(repr(value)) if isinstance(value, float) else Decimal(value), clock, value)
    if not isinstance(value, str):
        raise ValueError(f"{told(value)} is no time")
    text = value.strip()
    if clock.format is not None and clock.format not in EPOCHS:
        try:
            return _placed(datetime.strptime(text, clock.format), clock, text)
        except ValueError as error:
            if "Cannot read" in str(error):
                raise
            raise ValueError(f"{told(value)} is no time written as {clock.format}") from None
    if clock.format is not None or (_NUMBER.match(text) and not _BASIC_DATE.match(text)):
        try:
            return _since_1970(Decimal(text), clock, value)
        except InvalidOperation:
            raise ValueError(f"{told(value)} is no number, as {clock.format} has it") from None
    return _iso(text, clock, value)


def _iso(text: str, clock: TimeReading, value: Any) -> datetime:
    try:
        return _placed(datetime.fromisoformat(text), clock, text)
    except ValueError as error:
        if "Cannot read" in str(error):
            raise
    try:
        return parse_instant(text)
    except ValueError as error:
        if "as a time: write it" not in str(error):
            raise
        raise ValueError(f"{told(value)} is no time that can be read without --time-format") from None


def _placed(moment: datetime, clock: TimeReading, text: str) -> datetime:
    return moment.astimezone(UTC) if moment.tzinfo is not None else in_zone(moment, clock.zone, text)


def _since_1970(number: Decimal, clock: TimeReading, value: Any) -> datetime:
    if not number.is_finite():
        raise ValueError(f"{told(value)} is no time")
    name = clock.format if clock.format in EPOCHS else _unit(number)
    if name is None:
        raise ValueError(f"{told(value)} may be many times: say which with --time-format {', '.join(EPOCHS)}")
    return EPOCH + timedelta(microseconds=int((number * EPOCHS[name]).to_integral_value(ROUND_FLOOR)))


def _unit(number: Decimal) -> str | None:
    low = _FROM
    for name in EPOCHS:
        if low <= number < low * _STEP:
            return name
        low *= _STEP
    return None
