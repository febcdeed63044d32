"""What a job would read of one source: the archive's files, their bounds, and how complete the archive is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.config.load import Loaded
from rekappa.config.model import IcebergCandidate
from rekappa.errors import PlanError
from rekappa.home import Home
from rekappa.plan.model import Split
from rekappa.plan.outside import Piece
from rekappa.plan.plan import SourcePlan
from rekappa.sources.open import named_source, past_candidate
from rekappa.timeline import Window, format_duration, format_instant

if TYPE_CHECKING:
    from pyiceberg.table import Table

STRETCHES = 48


@dataclass(frozen=True, slots=True)
class EventStretch:
    """Event times whose files are asked for too, wherever they were ingested; `zone` is Spark's."""

    column: str
    window: Window
    zone: str


@dataclass(frozen=True, slots=True)
class Input:
    """One source as the plan shows it, with its splits. `table` is None for sources that are not Iceberg; `begins` is
    the instant before which its events were dropped on purpose; `happened` has the files of each stretch of event time
    that was asked for, by its column."""

    plan: SourcePlan
    splits: tuple[Split, ...] = ()
    table: Table | None = None
    begins: datetime | None = None
    happened: Mapping[str, tuple[Piece, ...]] = field(default_factory=dict)


def scan_source(
    loaded: Loaded,
    home: Home,
    name: str,
    reads: Window,
    regions: Sequence[str],
    columns: Sequence[str],
    beside: Sequence[EventStretch] = (),
) -> Input:
    """Look at the metadata of one source's archive; reads no data."""
    _, candidate = past_candidate(name, named_source(loaded, name))
    if not isinstance(candidate, IcebergCandidate):
        table = f"{candidate.database}.{candidate.table}"
        return Input(SourcePlan(name, table, None, tuple(columns), candidate.max_misalignment, 0, 0, 0))
    from rekappa.archive.completeness import complete_until
    from rekappa.archive.expired import Expired
    from rekappa.iceberg.catalog import load_table
    from rekappa.iceberg.splits import table_splits
    from rekappa.iceberg.times import ColumnTimes

    opened = load_table(loaded.config, candidate.table, home)
    asked = [(ColumnTimes(opened, one.column, one.zone), one.window) for one in beside]
    asked = [(times, stretch) for times, stretch in asked if times.measured]
    found = table_splits(opened, name, reads, regions, max_misalignment=candidate.max_misalignment, beside=asked)
    complete = complete_until(opened)
    _check_regions(name, candidate.table, regions, complete)
    plan = SourcePlan(
        name=name,
        table=candidate.table,
        snapshot=found.snapshot,
        columns=tuple(columns),
        max_misalignment=candidate.max_misalignment,
        files=found.files,
        rows=found.rows,
        bytes=found.bytes,
        skipped_files=found.skipped_files,
        skipped_bytes=found.skipped_bytes,
        complete_until=complete,
        newest=found.newest,
        wide_files=found.wide_files,
        density=density(found.splits, reads),
    )
    happened = {times.column: files for (times, _), files in zip(asked, found.happened, strict=True)}
    return Input(plan, found.splits, opened, Expired.of(opened.properties).before, happened)


def _check_regions(source: str, table: str, regions: Sequence[str], complete: dict[str, datetime]) -> None:
    unknown = [region for region in regions if complete and region not in complete]
    if unknown:
        raise PlanError(
            f"Cannot find region {unknown[0]!r} in the archive of source {source!r} ({table})",
            hint=f"It has: {', '.join(sorted(complete))}.",
        )


def check_complete(
    inputs: Iterable[Input], window: Window, reads: Window, regions: Sequence[str], allow_incomplete: bool
) -> list[str]:
    """What to say of the archive's completeness. Refuses an archive that lacks part of the window."""
    notes: list[str] = []
    final = reads.end - window.end
    for one in inputs:
        source = one.plan
        if one.begins is not None and reads.start < one.begins:
            notes.append(_dropped(source, one.begins, reads, allow_incomplete))
        if not source.complete_until:
            notes.append(f"Source {source.name!r} ({source.table}) does not record how complete it is.")
            continue
        chosen = {name: at for name, at in source.complete_until.items() if not regions or name in regions}
        region, until = min(chosen.items(), key=lambda item: item[1])
        if until < window.end:
            said = (
                f"the archive of source {source.name!r} is complete up to {format_instant(until)} only "
                f"(region {region!r}), the window ends at {format_instant(window.end)}"
            )
            if not allow_incomplete:
                raise PlanError(
                    f"Cannot plan the window: {said}",
                    hint="Let `rekappa archive run` catch up, choose an earlier end, or add --allow-incomplete.",
                )
            notes.append(f"Incomplete: {said}.")
        if until < reads.end:
            notes.append(
                f"Not final: output from {format_instant(max(until - final, window.start))} on may change, because "
                f"{source.name!r} is archived up to {format_instant(until)} and a drain of {format_duration(final)} "
                "is needed."
            )
    return notes


def _dropped(source: SourcePlan, begins: datetime, reads: Window, allow_incomplete: bool) -> str:
    said = (
        f"the archive of source {source.name!r} was expired up to {format_instant(begins)}, and events from "
        f"{format_instant(reads.start)} on are needed"
    )
    if not allow_incomplete:
        raise PlanError(
            f"Cannot plan the window: {said}",
            hint="Choose a later start, or add --allow-incomplete: then the output lacks what these events made.",
        )
    return f"Incomplete: {said}."


def archived_until(inputs: Iterable[Input], reads: Window, regions: Sequence[str]) -> datetime:
    """The end of what is read, or where the archive of a source ends before it."""
    ends = [reads.end]
    for one in inputs:
        known = [at for region, at in one.plan.complete_until.items() if not regions or region in regions]
        if known:
            ends.append(min(known))
        elif one.plan.newest is not None:
            ends.append(one.plan.newest)
    return min(ends)


def density(splits: Iterable[Split], reads: Window, stretches: int = STRETCHES) -> tuple[int, ...]:
    """Rows per equal stretch of `reads`, oldest first, thought to be spread evenly over the time of their file."""
    counts = [0.0] * stretches
    width = reads.length / stretches
    for split in splits:
        first = max(0, min((split.low - reads.start) // width, stretches - 1))
        last = max(0, min((split.high - reads.start) // width, stretches - 1))
        span = max((split.high - split.low) / timedelta(microseconds=1), 1.0)
        for at in range(first, last + 1):
            start = max(split.low, reads.start + at * width)
            end = min(split.high, reads.start + (at + 1) * width)
            share = max((end - start) / timedelta(microseconds=1), 0.0) / span if first != last else 1.0
            counts[at] += split.rows * min(share, 1.0)
    return tuple(round(count) for count in counts)
