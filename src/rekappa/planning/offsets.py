"""Plans by Kafka offset: strict, from a look at the archive; exact, from what production's run recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from rekappa.plan.offsets import strict_slices
from rekappa.plan.plan import JobPlan
from rekappa.planning.inputs import Input
from rekappa.planning.request import BackfillRequest
from rekappa.replay.positions import cut_points
from rekappa.timeline import EPOCH, Window

_ALWAYS = Window(EPOCH, datetime(9000, 1, 1, tzinfo=UTC))


def strict_plan(
    request: BackfillRequest, planned: JobPlan, inputs: Sequence[Input], max_rows: int, max_span: timedelta
) -> JobPlan:
    """Slices in the order of every Kafka partition; looks at the positions of all events to be read."""
    points = [
        point for one in inputs if one.table is not None for point in cut_points(one.table, one.splits, planned.reads)
    ]
    slices = strict_slices(
        points,
        [split for one in inputs for split in one.splits],
        reads=planned.reads,
        max_rows=max_rows,
        max_span=max_span,
        regions=request.regions,
    )
    return replace(planned, slices=slices)
