"""Instants, durations and windows.

Instants are aware datetimes in UTC, durations are timedeltas, a window is half-open: [start, end).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from rekappa.errors import PlanError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TICK = timedelta(microseconds=1)
"""The smallest step between two instants, here and in Iceberg, Spark and PostgreSQL."""

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_UNIT_NAMES = {
    **{unit: unit for unit in _UNITS},
    "millisecond": "ms", "milliseconds": "ms", "millis": "ms",
    "second": "s", "seconds": "s", "sec": "s", "secs": "s",
    "minute": "m", "minutes": "m", "min": "m", "mins": "m",
    "hour": "h", "hours": "h", "hr": "h", "hrs": "h",
    "day": "d", "days": "d",
    "week": "w", "weeks": "w",
}  # fmt: skip
_TERM = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)", re.IGNORECASE | re.ASCII)


def parse_duration(text: str) -> timedelta:
    """Read "15 minutes", "90s", "1h 30m" or a bare "0"; raises `ValueError` naming the text."""
    if text.strip() == "0":
        return timedelta()
    rest = _TERM.sub("", text).strip(" ,")
    terms = _TERM.findall(text)
    if rest or not terms:
        raise ValueError(f"Cannot read {text!r} as a duration: write it like '15 minutes' or '1h 30m'")
    total, said = timedelta(), set[str]()
    for number, unit in terms:
        name = _UNIT_NAMES.get(unit.lower())
        if name is None:
            raise ValueError(f"Cannot read {text!r} as a duration: unknown unit {unit!r} (use ms, s, m, h, d or w)")
        if name in said:
            raise ValueError(f"Cannot read {text!r} as a duration: it says {unit!r} twice")
        said.add(name)
        try:
            total += float(number) * _UNITS[name]
        except OverflowError:
            raise ValueError(f"Cannot read {text!r} as a duration: too long") from None
    return total


def format_duration(value: timedelta) -> str:
    """The shortest exact writing that `parse_duration` reads back: 1h 30m."""
    if value < timedelta():
        return "-" + format_duration(-value)
    millis = value // timedelta(milliseconds=1)
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, millis = divmod(millis, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts) or "0s"


def parse_instant(text: str) -> datetime:
    """Read an ISO 8601 instant, or a time and the name of its zone: 2026-11-01 08:00 America/New_York.

    One without offset or zone is UTC. Raises `ValueError` naming the text.
    """
    written, _, name = text.strip().rpartition(" ")
    zoned = bool(written) and name[:1].isalpha() and name != "Z"
    try:
        moment = datetime.fromisoformat(written if zoned else text.strip())
        if zoned and moment.tzinfo is None:
            return in_zone(moment, name, text)
        if not zoned:
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        pass
    except ValueError as error:
        if "Cannot read" in str(error):
            raise
    raise ValueError(
        f"Cannot read {text!r} as a time: write it like 2026-11-01T13:00Z or '2026-11-01 08:00 America/New_York'"
    ) from None


def in_zone(moment: datetime, name: str, text: str) -> datetime:
    """A wall clock's time as an instant; raises `ValueError`, naming the text that it was read from, for one that the
    clock never showed, or showed twice, and for a zone that there is not."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"Cannot read {text!r} as a time: there is no time zone {name!r}") from None
    first, second = (moment.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first == second:
        return first
    if first.astimezone(zone).replace(tzinfo=None) == moment:
        raise ValueError(
            f"Cannot read {text!r} as a time: the clocks showed it twice, at {format_instant(first)} and "
            f"{format_instant(second)}: write one of these"
        )
    raise ValueError(f"Cannot read {text!r} as a time: the clocks were put forward past it that day")


def micros(moment: datetime) -> int:
    """Whole microseconds since 1970 in UTC: how plans and tables write an instant."""
    return (moment - EPOCH) // TICK


def instant(value: int) -> datetime:
    """The instant that `micros` wrote."""
    return EPOCH + value * TICK


def format_instant(moment: datetime) -> str:
    """ISO 8601 in UTC, as short as it can be without losing precision: 2026-11-01T13:00Z."""
    utc = moment.astimezone(UTC)
    precision = "minutes" if utc.second == utc.microsecond == 0 else "auto"
    return utc.isoformat(timespec=precision).replace("+00:00", "Z")


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """The stretch [start, end): start belongs to it, end does not."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise PlanError(f"Cannot use window {self.start} .. {self.end}: its times have no time zone")
        if self.end <= self.start:
            raise PlanError(
                f"Cannot use window {format_instant(self.start)} .. {format_instant(self.end)}: "
                "the end must be after the start",
                hint="The window is half-open: start is in it, end is not.",
            )

    @classmethod
    def parse(cls, start: str, end: str) -> Window:
        """Read both ends; refuses with `PlanError`."""
        try:
            return cls(parse_instant(start), parse_instant(end))
        except ValueError as error:
            raise PlanError(str(error)) from None

    @property
    def length(self) -> timedelta:
        return self.end - self.start

    def widened(self, before: timedelta = timedelta(), after: timedelta = timedelta()) -> Window:
        """The window with a stretch more on either side; refuses what the calendar does not hold."""
        try:
            return Window(self.start - before, self.end + after)
        except OverflowError:
            raise PlanError(
                f"Cannot widen window {self} by {format_duration(before)} before and {format_duration(after)} after: "
                "that is outside the years 1 to 9999"
            ) from None

    def as_json(self) -> dict[str, str]:
        """Both ends; `parse` reads them back."""
        return {"start": self.start.isoformat(), "end": self.end.isoformat()}

    def contains(self, moment: datetime) -> bool:
        return self.start <= moment < self.end

    def overlaps(self, low: datetime, high: datetime) -> bool:
        """Whether any moment of the closed range [low, high] lies in the window."""
        return low < self.end and high >= self.start

    def __str__(self) -> str:
        return f"{format_instant(self.start)} .. {format_instant(self.end)}"
