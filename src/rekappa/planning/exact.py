"""Exact plans: from what production's run recorded, and from where the archive says that the needed events are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.config.bind import Query
from rekappa.config.load import Loaded
from rekappa.config.targets import target_of
from rekappa.errors import PlanError
from rekappa.home import Home
from rekappa.lookups.then import as_of
from rekappa.plan.model import Slice, Split, reader, source_of
from rekappa.plan.offsets import Position
from rekappa.plan.plan import JobPlan, SourcePlan
from rekappa.plan.recorded import Needed, RecordedBatch, batches_to_replay, exact_slices
from rekappa.plan.shape import Operation, Shape
from rekappa.plan.speeds import kind_of_state
from rekappa.planning.inputs import Input, density, scan_source
from rekappa.planning.production import production_runs
from rekappa.planning.request import BackfillRequest
from rekappa.record import INGESTION
from rekappa.replay.positions import offsets_of_times
from rekappa.sources.open import named_source
from rekappa.store.record import Batch, Run
from rekappa.store.runs import RunStore
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ALWAYS = Window(datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC))


@dataclass(frozen=True, slots=True)
class _Archive:
    """What the plans of all queries of a job have in common: the archive's files, and the offsets that are needed."""

    splits: Sequence[Split]
    needed: Mapping[Position, Needed]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The batches of one production run that are to be replayed; the first is the one to begin after.

    `ended` is when production committed the last of them.
    """

    run: Run
    batches: Sequence[RecordedBatch]
    ended: datetime


def exact_plans(
    spark: SparkSession,
    loaded: Loaded,
    home: Home,
    request: BackfillRequest,
    planned: JobPlan,
    own: Sequence[Query],
    shapes: Sequence[Shape],
    inputs: Sequence[Input],
) -> tuple[JobPlan, ...]:
    """One plan for each query of the job: production ran each in micro-batches of its own."""
    archive = _archive(spark, loaded, home, request, planned, shapes, inputs)
    closes = _closes(planned, shapes, request.drain)
    made = []
    for query in own:
        chosen, others = _production(RunStore.open(home), loaded, request, query, archive.needed, closes)
        warnings = [*planned.warnings, *_warnings(query, chosen, others, closes)]
        slices = exact_slices(chosen.batches, archive.splits)
        first, last = chosen.batches[1].number, chosen.batches[-1].number
        part = replace(
            planned,
            sinks=(query.sink,),
            query=query.name if len(own) > 1 else None,
            state=kind_of_state([next(shape for shape in shapes if shape.output == query.output)]),
            slices=slices,
            lookups=as_of(spark, loaded.config, planned.lookups, chosen.ended, planned.reads),
            warnings=tuple(warnings),
            reason=f"{planned.reason}: batches {first} to {last} of {chosen.run.id}",
        )
        made.append(_described(part, slices))
    return tuple(made)


def _archive(
    spark: SparkSession,
    loaded: Loaded,
    home: Home,
    request: BackfillRequest,
    planned: JobPlan,
    shapes: Sequence[Shape],
    inputs: Sequence[Input],
) -> _Archive:
    splits: list[Split] = []
    needed: dict[Position, Needed] = {}
    for one in inputs:
        name = one.plan.name
        splits += scan_source(loaded, home, name, _ALWAYS, request.regions, one.plan.columns).splits
        columns = _times(name, named_source(loaded, name).event_time, shapes)
        needed |= offsets_of_times(spark, one.plan, columns, planned.reads, request.regions)
    return _Archive(splits, needed)


def _times(source: str, event_time: str, shapes: Sequence[Shape]) -> tuple[str, ...]:
    """The columns by which an event of the source belongs to a time of the output.

    Where a sink declares none, or one that nobody knows the columns of, what is read is a stretch of ingestion time.
    """
    if any(shape.event_time is None or (shape.span is None and not shape.has(Operation.CUSTOM)) for shape in shapes):
        return (INGESTION,)
    anchors = {anchor.column for shape in shapes for anchor in shape.anchors if anchor.source == source}
    return tuple(sorted(anchors)) or (event_time,)


def _closes(planned: JobPlan, shapes: Sequence[Shape], drain: timedelta | None) -> datetime | None:
    """The watermark at which all rows of the window have come out; None if nothing says so.

    A join or a window on top of another waits for the ones below it: all margins together are more than any of that.
    """
    open_ended = any(shape.span is not None and shape.span.after.open for shape in shapes)
    return None if open_ended and drain is None else planned.reads.end + planned.warm_up + planned.drain


def _production(
    store: RunStore,
    loaded: Loaded,
    request: BackfillRequest,
    query: Query,
    needed: Mapping[Position, Needed],
    closes: datetime | None,
) -> tuple[_Chosen, list[Run]]:
    """The newest live run (or the one asked for) that read events of the window, and the others that did."""
    runs = production_runs(store, loaded, query.sink, request.live_run)
    if not runs:
        target = target_of(loaded.config.sinks[query.sink])
        raise PlanError(
            f"Cannot replay {loaded.config.app!r} exactly: no live run is recorded here that wrote to {target}",
            hint="Exact mode needs the run store that production writes to (REKAPPA_STORE); else use --mode ordered. "
            "--live-run names a run that wrote to another place, if production moved.",
        )
    found = []
    for run in runs:
        known = store.batches(run.id, query.name)
        batches = [_recorded(batch, request.regions) for batch in known]
        chosen = batches_to_replay(batches, _by_reader(needed, batches), closes)
        if chosen:
            found.append(_Chosen(run, chosen, max(one.committed for one in known if one.number == chosen[-1].number)))
    if not found:
        names = ", ".join(run.id for run in runs[:3])
        raise PlanError(
            f"Cannot replay job {query.job!r} exactly: no recorded micro-batch of it ({names}) read an event of the "
            "window",
            hint="Use --mode ordered, or name another run with --live-run.",
        )
    return found[0], [one.run for one in found[1:]]


def _recorded(batch: Batch, regions: Sequence[str]) -> RecordedBatch:
    ends = {
        Position(reader(one.source, one.reader), one.region, one.topic, partition): end
        for one in batch.positions
        if not regions or one.region in regions
        for partition, end in one.ends.items()
    }
    return RecordedBatch(batch.number, ends, batch.watermark)


def _by_reader(needed: Mapping[Position, Needed], batches: Sequence[RecordedBatch]) -> dict[Position, Needed]:
    """What each reader must read: the same for all readers of a source."""
    positions = {position for batch in batches for position in batch.ends}
    return {
        position: want
        for position in positions
        if (want := needed.get(position._replace(source=source_of(position.source)))) is not None
    }


def _warnings(query: Query, chosen: _Chosen, others: Sequence[Run], closes: datetime | None) -> list[str]:
    warnings = []
    if others:
        names = ", ".join(run.id for run in others)
        warnings.append(f"Run {chosen.run.id} is replayed; {names} read events of the window too (--live-run).")
    if closes is None:
        warnings.append(
            f"Nothing says when the last session of {query.name!r} ends: all batches up to the last, "
            f"{chosen.batches[-1].number}, are replayed. --drain ends it earlier."
        )
    elif (chosen.batches[-1].watermark or closes) < closes:
        warnings.append(
            f"Production had not closed the window when batch {chosen.batches[-1].number} of {query.name!r} was "
            "recorded: rows that it wrote later are not replayed."
        )
    return warnings


def _described(part: JobPlan, slices: Sequence[Slice]) -> JobPlan:
    """The plan with the figures of what its slices read, instead of the stretch around the window."""
    reaches = [one.reach for one in slices if one.reach is not None]
    reads = part.reads
    if reaches:
        reads = Window(min(reach.start for reach in reaches), max(reach.end for reach in reaches))
    return replace(part, reads=reads, sources=tuple(_source(source, slices, reads) for source in part.sources))


def _source(source: SourcePlan, slices: Sequence[Slice], reads: Window) -> SourcePlan:
    readers = {name for one in slices for name in one.sources if source_of(name) == source.name}
    parts = [one.sources[source.name] for one in slices if source.name in one.sources]
    files = {split.path: split for part in parts for split in part.splits}
    held = source.files + source.skipped_files, source.bytes + source.skipped_bytes
    size = sum(part.bytes for part in parts)
    return replace(
        source,
        readers=max(len(readers), 1),
        files=len(files),
        rows=sum(part.rows for part in parts),
        bytes=size,
        skipped_files=max(held[0] - len(files), 0),
        skipped_bytes=max(held[1] - size, 0),
        density=density(files.values(), reads),
    )
