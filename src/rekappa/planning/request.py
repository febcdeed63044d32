"""What a person asks of a backfill. Kept in the run's record, so that a run says for ever what it was told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from rekappa.errors import PlanError
from rekappa.plan.plan import Mode
from rekappa.timeline import Window, format_duration, format_instant, parse_duration

YEARS = Window(datetime(1583, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC))
"""Windows lie in these years: before them Spark's and Parquet's calendars differ, after them room runs out."""
LONGEST_MARGIN = timedelta(days=366 * 100)


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """`jobs` and `regions` are all of them if empty; `mode` is chosen if None; margins are derived if None.

    `clock_skew` is how far event times may be ahead of ingestion: with None it is at least what the sources declare,
    and as much as the archive shows; told, it is exactly that. `live_run` is the production run whose micro-batches
    exact mode replays and ordered mode takes as the least width of its slices: the newest, if None.
    """

    window: Window
    regions: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    mode: Mode | None = None
    warm_up: timedelta | None = None
    drain: timedelta | None = None
    clock_skew: timedelta | None = None
    allow_incomplete: bool = False
    live_run: str | None = None
    slice_rows: int | None = None
    slice_span: timedelta | None = None

    def __post_init__(self) -> None:
        if self.window.start < YEARS.start or self.window.end > YEARS.end:
            raise PlanError(
                f"Cannot use window {self.window}: it reaches outside the years {YEARS.start.year} to {YEARS.end.year}",
                hint="Write the year with four digits, as in 2026-11-01T13:00Z.",
            )
        for name, value in (("warm-up", self.warm_up), ("drain", self.drain), ("clock skew", self.clock_skew)):
            if value is not None and value < timedelta():
                raise PlanError(f"Cannot use a {name} of {format_duration(value)}: it can't be negative")
            if value is not None and value > LONGEST_MARGIN:
                raise PlanError(f"Cannot use a {name} of {format_duration(value)}: it is longer than a hundred years")

        if self.slice_span is not None and self.slice_span <= timedelta():
            raise PlanError(
                f"Cannot use a slice span of {format_duration(self.slice_span)}: a slice must span some time",
                hint="Give more, such as 15m, or leave it out.",
            )
        if self.slice_rows is not None and self.slice_rows < 1:
            raise PlanError(f"Cannot use slices of {self.slice_rows} rows: a slice must take at least one row")

    def to_json(self) -> dict[str, Any]:
        return {
            "start": format_instant(self.window.start),
            "end": format_instant(self.window.end),
            "regions": list(self.regions),
            "jobs": list(self.jobs),
            "mode": self.mode.value if self.mode else "auto",
            "warm_up": _text(self.warm_up),
            "drain": _text(self.drain),
            "clock_skew": _text(self.clock_skew),
            "allow_incomplete": self.allow_incomplete,
            "live_run": self.live_run,
            "slice_rows": self.slice_rows,
            "slice_span": _text(self.slice_span),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> BackfillRequest:
        return cls(
            window=Window.parse(value["start"], value["end"]),
            regions=tuple(value.get("regions", ())),
            jobs=tuple(value.get("jobs", ())),
            mode=None if value.get("mode", "auto") == "auto" else Mode(value["mode"]),
            warm_up=_duration(value.get("warm_up")),
            drain=_duration(value.get("drain")),
            clock_skew=_duration(value.get("clock_skew")),
            allow_incomplete=bool(value.get("allow_incomplete")),
            live_run=value.get("live_run"),
            slice_rows=value.get("slice_rows"),
            slice_span=_duration(value.get("slice_span")),
        )


def _text(value: timedelta | None) -> str | None:
    return None if value is None else format_duration(value)


def _duration(text: str | None) -> timedelta | None:
    return None if text is None else parse_duration(text)
