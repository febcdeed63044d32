"""Putting caps on a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rekappa.rate import Cap

if TYPE_CHECKING:
    from rekappa.sinks.contract import Sink

SomeSink = TypeVar("SomeSink", bound="Sink")


def rate_limited(sink: SomeSink, cap: float | None = None, run_cap: float | None = None) -> SomeSink:
    """The sink, taking at most `cap` rows per second, and together with the run's other sinks at most `run_cap`."""
    caps = ((f"sink {sink.name}", cap), ("run", run_cap))
    sink.caps = tuple(Cap(name, rows) for name, rows in caps if rows is not None)
    return sink
