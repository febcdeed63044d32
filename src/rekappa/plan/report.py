"""The plan as it is told: values first, rendering elsewhere.

    report = plan_report(plan)
    for line in report.lines():
        print(line)

`plan_summary` says the same as JSON. Both come from the plan that runs, so they can't disagree with the run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from rekappa.plan.picture import picture
from rekappa.plan.plan import CallsPlan, Estimate, JobPlan, LookupPlan, Mode, Plan, SourcePlan
from rekappa.plan.remarks import remarks
from rekappa.plan.words import count, size
from rekappa.timeline import Window, format_duration, format_instant

SOURCE_COLUMNS = ("source", "table", "files", "rows", "bytes", "skipped", "complete until")


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that the report says: what, how much, and why."""

    label: str
    value: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class JobReport:
    """What the report says of one job. Rows of `sources` are under `SOURCE_COLUMNS`."""

    job: str
    facts: tuple[Fact, ...]
    sources: tuple[tuple[str, ...], ...]
    picture: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanReport:
    title: str
    facts: tuple[Fact, ...]
    jobs: tuple[JobReport, ...]

    def lines(self) -> list[str]:
        """The whole report as plain text."""
        lines = [self.title, *_facts(self.facts)]
        for job in self.jobs:
            lines += ["", f"Job {job.job}", *_facts(job.facts), "", *_table(job.sources), "", *job.picture]
            lines += [f"warning: {text}" for text in job.warnings]
        return lines


def plan_report(plan: Plan, *, width: int = 80) -> PlanReport:
    """The report; its picture is at most `width` characters wide."""
    facts = (
        Fact("window", str(plan.window), "the output to be made anew"),
        Fact("regions", ", ".join(plan.regions) or "all"),
    )
    return PlanReport(f"Plan of {plan.app}", facts, tuple(_job(job, plan, width) for job in plan.jobs))


def plan_summary(plan: Plan) -> dict[str, Any]:
    """The plan without its slices, as JSON values: instants in ISO 8601, durations in seconds."""
    return {
        "app": plan.app,
        "version": plan.version,
        "window": _window(plan.window),
        "regions": list(plan.regions),
        "jobs": [_summary(job, plan) for job in plan.jobs],
    }


def _job(job: JobPlan, plan: Plan, width: int) -> JobReport:
    facts = [
        Fact("mode", job.mode.value, job.reason),
        Fact("writes", ", ".join(job.sinks)),
        Fact("warm-up", format_duration(job.warm_up), job.warm_up_reason),
        Fact("drain", format_duration(job.drain), job.drain_reason),
        Fact("reads", str(job.reads), "ingestion time"),
        *(_lookup(lookup) for lookup in job.lookups),
        *([Fact("chunks", count(len(job.chunks)))] if job.mode is Mode.BULK else []),
        *([_slices(job)] if job.mode is not Mode.BULK or job.by_slice else []),
        *_estimate(job.estimate),
    ]
    return JobReport(
        job.name,
        tuple(facts),
        tuple(_source(source) for source in job.sources),
        picture(job, plan.window, regions=plan.regions, width=width),
        remarks(job, plan.window),
    )


def _lookup(lookup: LookupPlan) -> Fact:
    if (asked := lookup.calls) is not None:
        begins = "nothing recorded" if lookup.first is None else f"recorded since {format_instant(lookup.first)}"
        calls = "an unknown number of calls" if asked.calls is None else f"{count(asked.calls)} calls"
        lacking = "" if asked.unanswered is None else f", {count(asked.unanswered)} without an answer"
        then = {"refuse": "refused", "call": "asked now", "null": "nulls"}[asked.missing]
        return Fact(f"service {lookup.name}", f"answers from {lookup.table}", f"{calls}{lacking} ({then}), {begins}")
    since = "no version" if lookup.first is None else f"known since {format_instant(lookup.first)}"
    versions = f"{count(lookup.versions)} versions begin in what is read, {since}"
    return Fact(f"lookup {lookup.name}", f"{lookup.table} as of each event's time", versions)


def _slices(job: JobPlan) -> Fact:
    largest = max((part.rows for part in job.slices), default=0)
    return Fact("slices", count(len(job.slices)), f"up to {count(largest)} rows each" if largest else "")


def _estimate(estimate: Estimate) -> list[Fact]:
    facts = [Fact("to read", f"{count(estimate.rows)} rows, {size(estimate.bytes)}")]
    duration = "not known" if estimate.duration is None else f"about {_rounded(estimate.duration)}"
    facts.append(Fact("duration", duration, estimate.basis))
    if estimate.state_rows is not None:
        facts.append(Fact("peak state", f"about {count(estimate.state_rows)} rows"))
    return facts


def _rounded(duration: timedelta) -> str:
    unit = timedelta(seconds=1) if duration < timedelta(hours=1) else timedelta(minutes=1)
    return format_duration(max(unit, round(duration / unit) * unit))


def _source(source: SourcePlan) -> tuple[str, ...]:
    skipped = f"{count(source.skipped_files)} files, {size(source.skipped_bytes)}" if source.skipped_files else "none"
    complete = ", ".join(f"{region} {format_instant(at)}" for region, at in sorted(source.complete_until.items()))
    return (
        source.name, source.table, count(source.files), count(source.rows), size(source.bytes), skipped,
        complete or "unknown",
    )  # fmt: skip


def _facts(facts: tuple[Fact, ...]) -> list[str]:
    label = max((len(fact.label) for fact in facts), default=0)
    return [f"  {fact.label:<{label}}  {fact.value}{f' ({fact.why})' if fact.why else ''}" for fact in facts]


def _table(rows: tuple[tuple[str, ...], ...]) -> list[str]:
    table = (SOURCE_COLUMNS, *rows)
    widths = [max(len(row[column]) for row in table) for column in range(len(SOURCE_COLUMNS))]
    return [
        "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
    ]


def _window(window: Window) -> dict[str, str]:
    return {"start": format_instant(window.start), "end": format_instant(window.end)}


def _summary(job: JobPlan, plan: Plan) -> dict[str, Any]:
    estimate = job.estimate
    return {
        "job": job.job,
        "query": job.query,
        "sinks": list(job.sinks),
        "mode": job.mode.value,
        "reason": job.reason,
        "warm_up": job.warm_up.total_seconds(),
        "warm_up_reason": job.warm_up_reason,
        "drain": job.drain.total_seconds(),
        "drain_reason": job.drain_reason,
        "reads": _window(job.reads),
        "by_slice": job.by_slice,
        "slices": len(job.slices),
        "largest_slice_rows": max((part.rows for part in job.slices), default=0),
        "chunks": [{"output": _window(chunk.output), "reads": _window(chunk.reads)} for chunk in job.chunks],
        "sources": [_source_summary(source) for source in job.sources],
        "lookups": [
            {
                **asdict(lookup),
                "first": None if lookup.first is None else format_instant(lookup.first),
                "calls": lookup.calls and _calls_summary(lookup.calls),
            }
            for lookup in job.lookups
        ],
        "estimate": {
            "rows": estimate.rows,
            "bytes": estimate.bytes,
            "seconds": None if estimate.duration is None else estimate.duration.total_seconds(),
            "state_rows": estimate.state_rows,
            "basis": estimate.basis,
        },
        "tolerances": {sink: dict(columns) for sink, columns in job.tolerances.items()},
        "warnings": list(remarks(job, plan.window)),
    }


def _calls_summary(asked: CallsPlan) -> dict[str, Any]:
    reach = None if asked.reach is None else _window(asked.reach)
    return {**asdict(asked), "until": format_instant(asked.until), "reach": reach}


def _source_summary(source: SourcePlan) -> dict[str, Any]:
    return {
        "name": source.name,
        "table": source.table,
        "snapshot": source.snapshot,
        "columns": list(source.columns),
        "max_misalignment": source.max_misalignment.total_seconds(),
        "files": source.files,
        "rows": source.rows,
        "bytes": source.bytes,
        "skipped_files": source.skipped_files,
        "skipped_bytes": source.skipped_bytes,
        "wide_files": source.wide_files,
        "complete_until": {region: format_instant(at) for region, at in sorted(source.complete_until.items())},
        "newest": None if source.newest is None else format_instant(source.newest),
    }
