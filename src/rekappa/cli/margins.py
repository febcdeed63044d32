"""Margins on the command line: for all jobs, or for one of them.

--warm-up 30m --warm-up sessions=2h
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rekappa.errors import PlanError
from rekappa.timeline import parse_duration

if TYPE_CHECKING:
    from rekappa.planning.request import JobRequest

MARGINS = ("warm_up", "drain", "clock_skew", "slice_rows", "slice_span")
"""The options that are told in this way, by their names in the request."""


def told_margins(given: Mapping[str, Sequence[str]]) -> tuple[dict[str, Any], dict[str, JobRequest]]:
    """What holds for all jobs, and what for single ones. Refuses what can't be read, and what is said twice."""
    from rekappa.planning.request import JobRequest

    every: dict[str, Any] = {}
    single: dict[str, dict[str, Any]] = {}
    for name in MARGINS:
        option = f"--{name.replace('_', '-')}"
        for text in given[name]:
            job, equals, value = text.rpartition("=")
            own = single.setdefault(job.strip(), {}) if equals else every
            if name in own:
                whom = f"for job {job.strip()!r}" if equals else "for all jobs"
                raise PlanError(f"Cannot use {option} {text}: it was said {whom} already")
            own[name] = _rows(option, value) if name == "slice_rows" else _duration(option, value)
    return every, {job: JobRequest(**own) for job, own in single.items()}


def _duration(option: str, text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise PlanError(f"Cannot use {option}: {error}") from None


def _rows(option: str, text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise PlanError(f"Cannot use {option} {text}: it is a number of rows, 1 or more")
    return int(text)
