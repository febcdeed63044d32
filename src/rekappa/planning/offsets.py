"""Plans by Kafka offset: strict, from a look at the archive; exact, from what production's run recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from rekappa.config.bind import Query
from rekappa.config.load import Loaded
from rekappa.errors import PlanError
from rekappa.home import Home
from rekappa.plan.offsets import strict_slices
from rekappa.plan.plan import JobPlan
from rekappa.planning.inputs import Input, scan_source
from rekappa.planning.request import BackfillRequest
from rekappa.replay.exact import recorded_slices
from rekappa.replay.positions import cut_points
from rekappa.store.record import Batch, Kind, Run
from rekappa.store.runs import RunStore
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


def exact_plan(
    loaded: Loaded,
    home: Home,
    request: BackfillRequest,
    planned: JobPlan,
    own: Sequence[Query],
    inputs: Sequence[Input],
) -> JobPlan:
    """The micro-batches that production ran, from long enough before the window until it had closed it."""
    store = RunStore.open(home)
    run = _production(store, loaded, request)
    batches = store.batches(run.id, own[0].name)
    if not [batch for batch in batches if batch.number >= 0]:
        raise PlanError(
            f"Cannot replay job {planned.job!r} exactly: run {run.id} recorded no micro-batches of it",
            hint="Use --mode ordered, or name another run with --live-run.",
        )
    first, last = _needed(batches, planned)
    chosen = batches[first + 1 : last + 1]
    whole = [
        scan_source(loaded, home, one.plan.name, _ALWAYS, request.regions, one.plan.columns).splits for one in inputs
    ]
    slices = recorded_slices(
        [_record(batch, request.regions) for batch in batches[first : last + 1]],
        [split for splits in whole for split in splits],
    )
    warnings = list(planned.warnings)
    if len(own) > 1:
        others = ", ".join(query.name for query in own[1:])
        warnings.append(f"The micro-batches are those of query {own[0].name!r}; {others} ran its own in production.")
    numbers = f"batches {chosen[0].number} to {chosen[-1].number}" if chosen else "no batches"
    return replace(planned, slices=slices, warnings=tuple(warnings), reason=f"{planned.reason}: {numbers} of {run.id}")


def _production(store: RunStore, loaded: Loaded, request: BackfillRequest) -> Run:
    if request.live_run:
        return store.run(request.live_run)
    found = store.runs(loaded.config.app, Kind.LIVE)
    if not found:
        raise PlanError(
            f"Cannot replay {loaded.config.app!r} exactly: no live run of it is recorded here",
            hint="Exact mode needs the run store of the machine that ran production; use --mode ordered.",
        )
    return found[0]


def _needed(batches: Sequence[Batch], planned: JobPlan) -> tuple[int, int]:
    """Indexes of the batch to begin after, and of the last one to replay.

    Begins where the watermark was still a whole warm-up and drain before the window, so that state and watermark
    are production's own when the window starts; ends when the watermark had passed what the window needs.
    """
    since = planned.reads.start - planned.drain
    first = 0
    for at, batch in enumerate(batches):
        if batch.watermark is not None and batch.watermark.year > 1970 and batch.watermark < since:
            first = at
    done = next(
        (
            at
            for at, batch in enumerate(batches)
            if batch.watermark is not None and batch.watermark >= planned.reads.end
        ),
        len(batches) - 1,
    )
    return first, max(done, first)


def _record(batch: Batch, regions: Sequence[str]) -> dict[str, Any]:
    positions = [asdict(one) for one in batch.positions if not regions or one.region in regions]
    return {"batch": batch.number, "positions": positions}
