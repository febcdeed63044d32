"""Plans as JSON values and back. Pure: no files here.

Instants are whole microseconds since 1970 in UTC and durations whole microseconds: exact, short, quick to read.
A split is a list, because a plan may hold a million of them; a path stands once per slice.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from rekappa.plan.finality import Finality
from rekappa.plan.model import OffsetRange, Slice, SourceSlice, Split, source_of
from rekappa.plan.plan import CallsPlan, Chunk, Estimate, JobPlan, LookupPlan, Mode, Plan, SourcePlan
from rekappa.plan.shape import Tolerance
from rekappa.timeline import TICK, Window, instant, micros

Json = dict[str, Any]


def encode_window(window: Window | None) -> list[int] | None:
    return None if window is None else [micros(window.start), micros(window.end)]


def decode_window(value: list[int]) -> Window:
    return Window(instant(value[0]), instant(value[1]))


def encode_slice(part: Slice) -> Json:
    """One slice, complete in itself, so that it can be read alone."""
    paths: dict[str, int] = {}
    sources = {
        name: {
            "splits": [_encode_split(split, paths) for split in one.splits],
            "offsets": [[o.region, o.topic, o.partition, o.start, o.end] for o in one.offsets],
        }
        for name, one in part.sources.items()
    }
    made: Json = {"slice": part.number, "reach": encode_window(part.reach), "paths": list(paths), "sources": sources}
    return made if part.watermark is None else made | {"watermark": micros(part.watermark)}


def decode_slice(value: Json) -> Slice:
    paths = value["paths"]
    sources = {
        name: SourceSlice(
            tuple([_decode_split(source_of(name), split, paths) for split in one["splits"]]),
            tuple([OffsetRange(*fields) for fields in one["offsets"]]),
        )
        for name, one in value["sources"].items()
    }
    reach = decode_window(value["reach"]) if value["reach"] else None
    return Slice(value["slice"], sources, reach, instant(value["watermark"]) if "watermark" in value else None)


def _encode_split(split: Split, paths: dict[str, int]) -> list[Any]:
    path = paths.setdefault(split.path, len(paths))
    fields = [path, split.rows, split.bytes, micros(split.low), micros(split.high), split.region]
    return [*fields, encode_window(split.cut), split.deletes] if split.cut or split.deletes else fields


def _decode_split(source: str, fields: list[Any], paths: list[str]) -> Split:
    path, rows, size, low, high, region, *rare = fields
    cut, deletes = rare or (None, False)
    window = None if cut is None else decode_window(cut)
    return Split(source, paths[path], rows, size, instant(low), instant(high), region, window, deletes)


def encode_head(plan: Plan) -> Json:
    """The plan without its slices."""
    return {
        "version": plan.version,
        "app": plan.app,
        "window": encode_window(plan.window),
        "regions": list(plan.regions),
        "jobs": [_encode_job(job) for job in plan.jobs],
    }


def decode_head(value: Json, slices: Mapping[str, tuple[Slice, ...]]) -> Plan:
    return Plan(
        app=value["app"],
        window=decode_window(value["window"]),
        regions=tuple(value["regions"]),
        jobs=tuple(_decode_job(job, slices.get(job["query"] or job["job"], ())) for job in value["jobs"]),
        version=value["version"],
    )


def _encode_job(job: JobPlan) -> Json:
    estimate = job.estimate
    return {
        "job": job.job,
        "query": job.query,
        "vouched": job.vouched,
        "state": job.state,
        "by_slice": job.by_slice,
        "chance": list(job.chance),
        "sinks": list(job.sinks),
        "mode": job.mode.value,
        "reason": job.reason,
        "warm_up": job.warm_up // TICK,
        "warm_up_reason": job.warm_up_reason,
        "drain": job.drain // TICK,
        "drain_reason": job.drain_reason,
        "reads": encode_window(job.reads),
        "sources": [_encode_source(source) for source in job.sources],
        "lookups": [_encode_lookup(lookup) for lookup in job.lookups],
        "slices": len(job.slices),
        "chunks": [[c.number, encode_window(c.output), encode_window(c.reads)] for c in job.chunks],
        "finality": None if job.finality is None else _encode_finality(job.finality),
        "warnings": list(job.warnings),
        "tolerances": {sink: dict(sorted(columns.items())) for sink, columns in sorted(job.tolerances.items())},
        "estimate": {
            "rows": estimate.rows,
            "bytes": estimate.bytes,
            "duration": None if estimate.duration is None else estimate.duration // TICK,
            "state_rows": estimate.state_rows,
            "basis": estimate.basis,
        },
    }


def _decode_job(value: Json, slices: tuple[Slice, ...]) -> JobPlan:
    estimate = value["estimate"]
    duration = estimate["duration"]
    return JobPlan(
        job=value["job"],
        query=value["query"],
        vouched=value["vouched"],
        state=value.get("state", ""),
        by_slice=value["by_slice"],
        chance=tuple(value.get("chance", ())),
        sinks=tuple(value["sinks"]),
        mode=Mode(value["mode"]),
        reason=value["reason"],
        warm_up=timedelta(microseconds=value["warm_up"]),
        warm_up_reason=value["warm_up_reason"],
        drain=timedelta(microseconds=value["drain"]),
        drain_reason=value["drain_reason"],
        reads=decode_window(value["reads"]),
        sources=tuple(_decode_source(source) for source in value["sources"]),
        lookups=tuple(_decode_lookup(lookup) for lookup in value["lookups"]),
        slices=slices,
        chunks=tuple(Chunk(n, decode_window(output), decode_window(reads)) for n, output, reads in value["chunks"]),
        finality=None if value["finality"] is None else _decode_finality(value["finality"]),
        warnings=tuple(value["warnings"]),
        tolerances={
            sink: {column: Tolerance(one) for column, one in columns.items()}
            for sink, columns in value["tolerances"].items()
        },
        estimate=Estimate(
            estimate["rows"],
            estimate["bytes"],
            None if duration is None else timedelta(microseconds=duration),
            estimate["state_rows"],
            estimate["basis"],
        ),
    )


def _encode_finality(finality: Finality) -> list[int | None]:
    lengths = (finality.ahead, finality.delay, finality.after, finality.gap)
    counted = (None if length is None else length // TICK for length in lengths)
    return [micros(finality.archived), *counted, int(finality.open_before), int(finality.held)]


def _decode_finality(value: list[Any]) -> Finality:
    archived, ahead, delay, *rest, open_before, held = value
    after, gap = (None if length is None else timedelta(microseconds=length) for length in rest)
    return Finality(
        instant(archived),
        timedelta(microseconds=ahead),
        timedelta(microseconds=delay),
        after,
        gap,
        bool(open_before),
        bool(held),
    )


def _encode_lookup(lookup: LookupPlan) -> list[Any]:
    first = None if lookup.first is None else micros(lookup.first)
    asked = lookup.calls
    calls = asked and [
        asked.missing, micros(asked.until), asked.calls, asked.unanswered, encode_window(asked.reach)
    ]  # fmt: skip
    return [lookup.name, lookup.table, lookup.snapshot, lookup.versions, first, calls]


def _decode_lookup(value: list[Any]) -> LookupPlan:
    name, table, snapshot, versions, first, asked = value
    calls = None
    if asked is not None:
        missing, until, count, unanswered, reach = asked
        calls = CallsPlan(missing, instant(until), count, unanswered, None if reach is None else decode_window(reach))
    return LookupPlan(name, table, snapshot, versions, None if first is None else instant(first), calls)


def _encode_source(source: SourcePlan) -> Json:
    return {
        "name": source.name,
        "table": source.table,
        "snapshot": source.snapshot,
        "columns": list(source.columns),
        "max_misalignment": source.max_misalignment // TICK,
        "files": source.files,
        "rows": source.rows,
        "bytes": source.bytes,
        "skipped_files": source.skipped_files,
        "skipped_bytes": source.skipped_bytes,
        "complete_until": {region: micros(moment) for region, moment in sorted(source.complete_until.items())},
        "newest": None if source.newest is None else micros(source.newest),
        "wide_files": source.wide_files,
        "readers": source.readers,
        "density": list(source.density),
    }


def _decode_source(value: Json) -> SourcePlan:
    return SourcePlan(
        name=value["name"],
        table=value["table"],
        snapshot=value["snapshot"],
        columns=tuple(value["columns"]),
        max_misalignment=timedelta(microseconds=value["max_misalignment"]),
        files=value["files"],
        rows=value["rows"],
        bytes=value["bytes"],
        skipped_files=value["skipped_files"],
        skipped_bytes=value["skipped_bytes"],
        complete_until={region: instant(moment) for region, moment in value["complete_until"].items()},
        newest=None if value["newest"] is None else instant(value["newest"]),
        wide_files=value["wide_files"],
        readers=value["readers"],
        density=tuple(value["density"]),
    )
