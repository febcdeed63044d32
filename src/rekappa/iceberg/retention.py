"""Which snapshots of a table may go, and what they say that must last. Pure: the table's metadata in, a decision out.

A snapshot's summary says who made it and with which batch (`rekappa.iceberg.commits`), and of an archive up to when it
is complete. That is looked for in the snapshots of the main branch, newest first; what has gone from there stands in
the table's properties. Notes are taken of all that is old enough to go, whether it goes now or is kept for somebody.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from rekappa.timeline import micros

WRITER = "rekappa.writer"
BATCH = "rekappa.batch"
COMPLETE = "rekappa.complete-until."
"""Begins what an archive says of its completeness, in summaries and in properties; the region follows."""
COMMITTED = "rekappa.committed."
"""Begins the property with the last batch of a writer whose snapshots are gone."""
PUBLICATION = "rekappa.publication."
"""Begins the property that says what became of a run's publication."""
AGE = "history.expire.max-snapshot-age-ms"
"""Iceberg's own property: a table that has it lets its snapshots go at that age, one that has not keeps them all."""
WRITERS = 100
"""Of so many writers the last batch is remembered: of live runs that have ended, the newest."""
AT_ONCE = 1000
"""How many snapshots go in one commit: a table that was never looked after is caught up with step by step."""


@dataclass(frozen=True, slots=True)
class Leave:
    """What goes: snapshots and properties; and what is noted first. `more` says that others would be old enough."""

    snapshots: tuple[int, ...] = ()
    note: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    more: bool = False


def kept_for(metadata: Mapping[str, Any]) -> timedelta | None:
    """The age at which the table lets its snapshots go; None for one that does not say, and keeps them."""
    told = (metadata.get("properties") or {}).get(AGE)
    return None if told is None else timedelta(milliseconds=int(told))


def leaving(metadata: Mapping[str, Any], before: datetime, pinned: Collection[int] = ()) -> Leave:
    """What a table with this metadata (as Iceberg writes it) lets go of: snapshots made before then.

    Kept are the current one, those that a branch or a tag names, those that a publication is undone or compared by, and
    the `pinned`.
    """
    properties: Mapping[str, str] = metadata.get("properties") or {}
    limit = micros(before) // 1000
    old = sorted(
        (one for one in metadata.get("snapshots") or () if one["timestamp-ms"] < limit),
        key=lambda one: (one["timestamp-ms"], one["snapshot-id"]),
    )
    if not old:
        return Leave()
    kept = {metadata.get("current-snapshot-id"), *pinned, *_named(metadata), *_published(properties)}
    gone = [int(one["snapshot-id"]) for one in old if one["snapshot-id"] not in kept]
    if not gone:
        return Leave()
    told = {**_committed(metadata, limit, properties), **_complete(metadata, limit, properties)}
    note, drop = _fewest({**properties, **told})
    note = {key: value for key, value in note.items() if key in told and properties.get(key) != value}
    return Leave(tuple(gone[:AT_ONCE]), note, tuple(key for key in drop if key in properties), len(gone) > AT_ONCE)


def line(metadata: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The snapshots of the main branch, newest first, as far back as the table remembers without a gap."""
    known = {one["snapshot-id"]: one for one in metadata.get("snapshots") or ()}
    at = metadata.get("current-snapshot-id")
    while at is not None and (one := known.get(at)) is not None:
        yield one
        at = one.get("parent-snapshot-id")


def last_batch_of(metadata: Mapping[str, Any], writer: str) -> int | None:
    """The newest batch that the writer committed to the main branch, None if there is none."""
    for one in line(metadata):
        summary = one.get("summary") or {}
        if summary.get(WRITER) == writer:
            return int(summary[BATCH])
    told = (metadata.get("properties") or {}).get(COMMITTED + writer)
    return None if told is None else int(json.loads(told)["batch"])


def newest_writer_of(metadata: Mapping[str, Any]) -> str | None:
    """Who made the newest stamped commit to the main branch, None if none is stamped."""
    for one in line(metadata):
        if writer := (one.get("summary") or {}).get(WRITER):
            return str(writer)
    notes = {key: _sequence(value) for key, value in (metadata.get("properties") or {}).items() if _is_note(key)}
    newest = max(notes, key=lambda key: notes[key], default=None)
    return None if newest is None else newest.removeprefix(COMMITTED)


def _named(metadata: Mapping[str, Any]) -> set[int]:
    return {int(ref["snapshot-id"]) for ref in (metadata.get("refs") or {}).values()}


def _published(properties: Mapping[str, str]) -> set[int]:
    told = [json.loads(value) for key, value in properties.items() if key.startswith(PUBLICATION)]
    return {int(one["snapshot"]) for one in told}


def _committed(metadata: Mapping[str, Any], limit: int, properties: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in line(metadata):
        summary = one.get("summary") or {}
        writer, batch = summary.get(WRITER), summary.get(BATCH)
        if one["timestamp-ms"] < limit and writer is not None and batch is not None:
            told = json.dumps({"batch": int(batch), "sequence": int(one.get("sequence-number") or 0)})
            found.setdefault(COMMITTED + writer, told)
    return {key: value for key, value in found.items() if _sequence(value) >= _sequence(properties.get(key))}


def _complete(metadata: Mapping[str, Any], limit: int, properties: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in line(metadata):
        for key, value in (one.get("summary") or {}).items():
            # Instants are written so that they sort as text.
            if key.startswith(COMPLETE) and one["timestamp-ms"] < limit and value > properties.get(key, ""):
                found.setdefault(key, value)
    return found


def _fewest(properties: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The properties without the notes of the oldest writers above the limit, and which notes those are."""
    notes = sorted((key for key in properties if _is_note(key)), key=lambda key: _sequence(properties[key]))
    drop = notes[: max(0, len(notes) - WRITERS)]
    return {key: value for key, value in properties.items() if key not in drop}, drop


def _is_note(key: str) -> bool:
    return key.startswith(COMMITTED)


def _sequence(note: str | None) -> int:
    return -1 if note is None else int(json.loads(note)["sequence"])
