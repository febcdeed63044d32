"""What a person asks of a backfill. Kept in the run's record, so that a run says for ever what it was told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from rekappa.errors import PlanError
from rekappa.plan.plan import Mode
from rekappa.timeline import Window, format_duration, format_instant, parse_duration

YEARS = Window(datetime(1583, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC))
"""Windows lie in these years: before them Spark's and Parquet's calendars differ, after them room runs out."""
LONGEST_MARGIN = timedelta(days=366 * 100)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What is asked of one job besides; None where it is as for all of them. The names are those of the request."""

    warm_up: timedelta | None = None
    drain: timedelta | None = None
    clock_skew: timedelta | None = None
    slice_rows: int | None = None
    slice_span: timedelta | None = None

    def __post_init__(self) -> None:
        _require_margins(self.warm_up, self.drain, self.clock_skew)
        _require_slices(self.slice_rows, self.slice_span)

    def to_json(self) -> dict[str, Any]:
        told = {name: value for name, value in asdict(self).items() if value is not None}
        return {name: _text(value) if isinstance(value, timedelta) else value for name, value in told.items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> JobRequest:
        lengths = {name: _duration(value.get(name)) for name in ("warm_up", "drain", "clock_skew", "slice_span")}
        return cls(**lengths, slice_rows=value.get("slice_rows"))


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """`jobs`, `sinks` and `regions` are all of them if empty; `mode` is chosen if None; margins are derived if None.

    `by_job` holds what is asked of single jobs, which goes before what is asked of all. `clock_skew` is how far event
    times may be ahead of ingestion: with None it is at least what the sources declare, and as much as the archive
    shows; told, it is exactly that. `live_run` is the production run whose micro-batches exact mode replays and ordered
    mode takes as the least width of its slices: the newest, if None.
    """

    window: Window
    regions: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    mode: Mode | None = None
    warm_up: timedelta | None = None
    drain: timedelta | None = None
    clock_skew: timedelta | None = None
    allow_incomplete: bool = False
    live_run: str | None = None
    slice_rows: int | None = None
    slice_span: timedelta | None = None
    by_job: Mapping[str, JobRequest] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.window.start < YEARS.start or self.window.end > YEARS.end:
            raise PlanError(
                f"Cannot use window {self.window}: it reaches outside the years {YEARS.start.year} to {YEARS.end.year}",
                hint="Write the year with four digits, as in 2026-11-01T13:00Z.",
            )
        _require_margins(self.warm_up, self.drain, self.clock_skew)
        _require_slices(self.slice_rows, self.slice_span)

    def of_job(self, name: str) -> BackfillRequest:
        """The request as it is for one job: what was asked of that job in place of what was asked of all."""
        own = self.by_job.get(name, JobRequest())
        told = {one.name: value for one in fields(own) if (value := getattr(own, one.name)) is not None}
        return replace(self, by_job={}, **told)

    def to_json(self) -> dict[str, Any]:
        return {
            "start": format_instant(self.window.start),
            "end": format_instant(self.window.end),
            "regions": list(self.regions),
            "jobs": list(self.jobs),
            "only_sinks": list(self.sinks),
            "mode": self.mode.value if self.mode else "auto",
            "warm_up": _text(self.warm_up),
            "drain": _text(self.drain),
            "clock_skew": _text(self.clock_skew),
            "allow_incomplete": self.allow_incomplete,
            "live_run": self.live_run,
            "slice_rows": self.slice_rows,
            "slice_span": _text(self.slice_span),
            "by_job": {job: own.to_json() for job, own in self.by_job.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> BackfillRequest:
        return cls(
            window=Window.parse(value["start"], value["end"]),
            regions=tuple(value.get("regions", ())),
            jobs=tuple(value.get("jobs", ())),
            sinks=tuple(value.get("only_sinks", ())),
            mode=None if value.get("mode", "auto") == "auto" else Mode(value["mode"]),
            warm_up=_duration(value.get("warm_up")),
            drain=_duration(value.get("drain")),
            clock_skew=_duration(value.get("clock_skew")),
            allow_incomplete=bool(value.get("allow_incomplete")),
            live_run=value.get("live_run"),
            slice_rows=value.get("slice_rows"),
            slice_span=_duration(value.get("slice_span")),
            by_job={job: JobRequest.from_json(own) for job, own in value.get("by_job", {}).items()},
        )


def _require_margins(warm_up: timedelta | None, drain: timedelta | None, clock_skew: timedelta | None) -> None:
    for name, value in (("warm-up", warm_up), ("drain", drain), ("clock skew", clock_skew)):
        if value is not None and value < timedelta():
            raise PlanError(f"Cannot use a {name} of {format_duration(value)}: it can't be negative")
        if value is not None and value > LONGEST_MARGIN:
            raise PlanError(f"Cannot use a {name} of {format_duration(value)}: it is longer than a hundred years")


def _require_slices(rows: int | None, span: timedelta | None) -> None:
    if span is not None and span <= timedelta():
        raise PlanError(
            f"Cannot use a slice span of {format_duration(span)}: a slice must span some time",
            hint="Give more, such as 15m, or leave it out.",
        )
    if rows is not None and rows < 1:
        raise PlanError(f"Cannot use slices of {rows} rows: a slice must take at least one row")


def _text(value: timedelta | None) -> str | None:
    return None if value is None else format_duration(value)


def _duration(text: str | None) -> timedelta | None:
    return None if text is None else parse_duration(text)
