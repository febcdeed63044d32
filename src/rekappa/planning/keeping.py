"""How a sink takes what a job makes, in the planner's words."""

from __future__ import annotations

from rekappa.config.model import SinkBase
from rekappa.plan.shape import Keeps, Taken


def taken_by(sink: SinkBase) -> Taken:
    """Every row, or one per key: the last or, where the sink declares a version, the highest."""
    if not sink.upserts:
        return Taken()
    return Taken(Keeps.NEWEST if sink.version else Keeps.LAST, sink.output_mode == "update", sink.key)
