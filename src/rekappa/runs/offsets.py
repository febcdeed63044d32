"""Plans by Kafka offset: strict, from a look at the archive; exact, from what production's run recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.config.bind import Query
from rekappa.config.load import Loaded
from rekappa.errors import PlanError
from rekappa.home import Home
from rekappa.plan.model import Split
from rekappa.plan.offsets import CutPoint, Position, RecordedBatch, exact_slices, strict_slices
from rekappa.plan.plan import JobPlan
from rekappa.record import INGESTION, OFFSET, PARTITION, REGION, TOPIC
from rekappa.runs.inputs import Input, scan_source
from rekappa.runs.record import Batch, Kind, Run
from rekappa.runs.request import BackfillRequest
from rekappa.runs.store import RunStore
from rekappa.sources.open import open_batch
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET = timedelta(minutes=1)
_ALWAYS = Window(datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC))


def strict_plan(
    spark: SparkSession,
    loaded: Loaded,
    home: Home,
    request: BackfillRequest,
    planned: JobPlan,
    splits: Sequence[Split],
    max_rows: int,
    max_span: timedelta,
) -> JobPlan:
    points = [
        point
        for source in planned.sources
        for point in _cut_points(spark, loaded, home, source.name, planned.reads, request.regions)
    ]
    slices = strict_slices(
        points, splits, reads=planned.reads, max_rows=max_rows, max_span=max_span, regions=request.regions
    )
    return replace(planned, slices=slices)


def _cut_points(
    spark: SparkSession, loaded: Loaded, home: Home, source: str, reads: Window, regions: Sequence[str]
) -> Iterator[CutPoint]:
    from pyspark.sql import functions as F

    bucket = F.window(F.col(INGESTION), f"{BUCKET // timedelta(seconds=1)} seconds").alias("bucket")
    rows = (
        open_batch(spark, loaded, home, source, reads, regions)
        .groupBy(F.col(REGION).alias("region"), F.col(TOPIC).alias("topic"), F.col(PARTITION).alias("part"), bucket)
        .agg(F.min(OFFSET).alias("first"), F.max(OFFSET).alias("last"), F.count("*").alias("rows"))
        .select("region", "topic", "part", F.unix_micros("bucket.start").alias("at"), "first", "last", "rows")
    )
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    for row in rows.toLocalIterator():
        start = epoch + timedelta(microseconds=row["at"])
        position = Position(source, row["region"], row["topic"], row["part"])
        yield CutPoint(position, Window(start, start + BUCKET), row["first"], row["last"], row["rows"])


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
    slices = exact_slices(
        [RecordedBatch(batch.number, _ends(batch, request.regions)) for batch in chosen],
        [split for splits in whole for split in splits],
        before=_ends(batches[first], request.regions),
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


def _ends(batch: Batch, regions: Sequence[str]) -> dict[Position, int]:
    return {
        Position(one.source, one.region, one.topic, partition): end
        for one in batch.positions
        if not regions or one.region in regions
        for partition, end in one.ends.items()
    }
