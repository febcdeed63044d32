"""What a person should know about a plan before it runs, from the plan's own figures."""

from __future__ import annotations

from rekappa.plan.plan import JobPlan, SourcePlan
from rekappa.plan.words import count, size
from rekappa.timeline import Window, format_duration, format_instant

HUGE_ROWS = 20_000_000
HUGE_BYTES = 4 * 1024**3


def remarks(job: JobPlan, window: Window) -> tuple[str, ...]:
    """All warnings of a job: those made with the plan first, then what its sources and slices show."""
    found = list(job.warnings)
    for source in job.sources:
        found += _of_source(source, job, window)
    found += _of_slices(job)
    return tuple(dict.fromkeys(found))


def _of_source(source: SourcePlan, job: JobPlan, window: Window) -> list[str]:
    found = []
    if source.files == 0:
        found.append(f"Source {source.name!r} ({source.table}) has no data between {job.reads}.")
    elif source.newest is not None and not source.complete_until and source.newest < job.reads.end:
        final = max(source.newest - job.drain, window.start)
        if final < window.end:
            found.append(
                f"Source {source.name!r} ends at {format_instant(source.newest)}: output from {format_instant(final)} "
                "on is not final, since later events may still change it."
            )
    if source.wide_files and job.slices:
        found.append(
            f"{count(source.wide_files)} of {count(source.files)} files of source {source.name!r} span more than "
            f"{format_duration(source.max_misalignment)} and are cut: parts of them are read in several slices."
        )
    return found


def _of_slices(job: JobPlan) -> list[str]:
    huge = [part for part in job.slices if part.rows > HUGE_ROWS or part.bytes > HUGE_BYTES]
    if not huge:
        return []
    largest = max(huge, key=lambda part: (part.rows, -part.number))
    return [
        f"{count(len(huge))} of {count(len(job.slices))} slices are very large (slice {largest.number}: "
        f"{count(largest.rows)} rows, {size(largest.bytes)}): a smaller --slice-rows or --slice-span needs less memory."
    ]
