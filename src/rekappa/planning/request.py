"""What a person asks of a backfill. Kept in the run's record, so that a run says for ever what it was told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rekappa.errors import PlanError
from rekappa.plan.plan import Mode
from rekappa.timeline import Window, format_duration, format_instant, parse_duration


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """`jobs` and `regions` are all of them if empty; `mode` is chosen if None; margins are derived if None.

    `live_run` is the production run whose micro-batches exact mode replays: the newest, if None.
    """

    window: Window
    regions: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    mode: Mode | None = None
    warm_up: timedelta | None = None
    drain: timedelta | None = None
    allow_incomplete: bool = False
    live_run: str | None = None
    slice_rows: int | None = None
    slice_span: timedelta | None = None

    def __post_init__(self) -> None:
        for name, value in (("warm-up", self.warm_up), ("drain", self.drain)):
            if value is not None and value < timedelta():
                raise PlanError(f"Cannot use a {name} of {format_duration(value)}: it can't be negative")

    def to_json(self) -> dict[str, Any]:
        return {
            "start": format_instant(self.window.start),
            "end": format_instant(self.window.end),
            "regions": list(self.regions),
            "jobs": list(self.jobs),
            "mode": self.mode.value if self.mode else "auto",
            "warm_up": _text(self.warm_up),
            "drain": _text(self.drain),
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
            allow_incomplete=bool(value.get("allow_incomplete")),
            live_run=value.get("live_run"),
            slice_rows=value.get("slice_rows"),
            slice_span=_duration(value.get("slice_span")),
        )


def _text(value: timedelta | None) -> str | None:
    return None if value is None else format_duration(value)


def _duration(text: str | None) -> timedelta | None:
    return None if text is None else parse_duration(text)
