"""Slices at least as wide as production's micro-batches were, where the job allows it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from rekappa.config.bind import Query
from rekappa.config.load import Loaded
from rekappa.home import Home
from rekappa.plan.finality import Finality
from rekappa.plan.model import OffsetRange, Split
from rekappa.plan.widths import widest_batch
from rekappa.planning.production import production_runs
from rekappa.store.record import Batch
from rekappa.store.runs import RunStore
from rekappa.timeline import Window, format_duration

_MINUTE = timedelta(minutes=1)


def production_width(
    home: Home, loaded: Loaded, live_run: str | None, queries: Sequence[Query], splits: Sequence[Split], reads: Window,
    finality: Finality | None,
) -> timedelta:  # fmt: skip
    """The widest micro-batch that any run of production (or the one named) had around what is read, in whole minutes.

    Zero where nothing is recorded, and for jobs without a watermark, which drop nothing.
    """
    if finality is None or not splits:
        return timedelta()
    store = RunStore.open(home)
    earliest, widest = min(split.low for split in splits), timedelta()
    for query in queries:
        for run in production_runs(store, loaded, query.sink, live_run):
            batches = store.batches(run.id, query.name)
            last = _ranges(batches[-2:])
            newest = max((split.high for split in splits if _may_hold(split, last)), default=earliest)
            marks = [batch.watermark for batch in batches if batch.number >= 0]
            widest = max(widest, widest_batch(marks, reads, finality.delay, earliest, newest))
    return -(-widest // _MINUTE) * _MINUTE


def chosen_span(
    told: timedelta | None, own: timedelta, production: timedelta, *, in_order: bool
) -> tuple[timedelta, list[str]]:
    """The span of slices, and what to say. A job that looks at the order inside a slice keeps to its `own` span."""
    span = told if told is not None else own if in_order else max(own, production)
    if span >= production:
        return span, []
    hint = "" if in_order else f" --slice-span '{format_duration(production)}' is as wide;"
    return span, [
        f"Production's micro-batches around the window spanned up to {format_duration(production)}, slices span "
        f"{format_duration(span)}: a late event that production took in may be dropped here.{hint} --mode exact "
        "repeats production's own."
    ]


def _ranges(batches: Sequence[Batch]) -> list[tuple[str, OffsetRange]]:
    """What the last of two consecutive batches read, by source."""
    if len(batches) < 2:
        return []
    began = {(one.source, one.reader, one.region, one.topic): one.ends for one in batches[0].positions}
    return [
        (one.source, OffsetRange(one.region, one.topic, partition, start, end))
        for one in batches[1].positions
        for partition, end in one.ends.items()
        if end > (start := began.get((one.source, one.reader, one.region, one.topic), {}).get(partition, 0))
    ]


def _may_hold(split: Split, ranges: Sequence[tuple[str, OffsetRange]]) -> bool:
    return any(
        source == split.source
        and split.region in ("", wanted.region)
        and (split.positions is None or split.positions.may_hold(wanted))
        for source, wanted in ranges
    )
