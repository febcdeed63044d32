"""What is known of an app's archive, drawn over time: rows, completeness, gaps, dead letters, publications."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from fastapi import Request
from markupsafe import Markup

from rekappa.console.context import console_of
from rekappa.console.draw import bars, stretch
from rekappa.console.observed import Observation
from rekappa.errors import RekappaError
from rekappa.operations.changes import sets
from rekappa.operations.core import Core
from rekappa.store.record import Kind, Run
from rekappa.tasks.files import answer
from rekappa.tasks.standing import tasks
from rekappa.timeline import TICK, Window

Proof = Mapping[str, Any]


def last_proof(core: Core, name: str) -> Proof | None:
    """What the last `archive verify` found, and when it was asked; None if it never was."""
    asked = (one for one in tasks(core.home, app=name, limit=60) if one.words[:2] == ("archive", "verify"))
    done = next((one for one in asked if not one.state.going), None)
    if done is None:
        return None
    told = answer(core.home, done.id) or {}
    gaps = [one for one in told.get("partitions", ()) if one["gaps"] or one["duplicates"]]
    return {"at": done.created, "sound": told.get("sound"), "error": done.error, "found": gaps}


def overview(request: Request, core: Core, name: str) -> Observation:
    """What `rekappa archive overview` said last."""
    loaded = core.loaded(name)
    return console_of(request).observed.ask("archive", "overview", str(loaded.folder), *sets(loaded.overrides))


def _window_of(one: Mapping[str, Any]) -> Window | None:
    return Window.parse(one["start"], one["end"]) if one.get("start") else None


def time_of(seen: Observation) -> Window | None:
    """The time that all sources together cover."""
    found = [window for one in seen.value or () if (window := _window_of(one))]
    return Window(min(one.start for one in found), max(one.end for one in found)) if found else None


def pictures(
    core: Core, name: str, seen: Observation, proof: Proof | None, start: str = "", end: str = ""
) -> list[tuple[str, Markup]]:
    """One picture for each source, all over the same time: rows, completeness, gaps, publications, the window."""
    whole = time_of(seen)
    if whole is None:
        return []
    try:
        chosen: Window | None = Window.parse(start, end)
    except RekappaError:
        chosen = None
    published = [one for one in core.store().page(50, app=name, kind=Kind.BACKFILL) if _published(one)]
    made = []
    for one in seen.value:
        own = _window_of(one)
        if own is None:
            made.append((str(one["source"]), Markup("")))
            continue
        marks = "".join(
            stretch(whole, *_bounds(run), "published", f"{run.id} published this window") for run in published
        )
        known = [datetime.fromisoformat(at) for at in one["complete_until"].values()]
        if known:
            marks += stretch(whole, min(known), whole.end, "open", "not complete yet")
        marks += "".join(_gaps(whole, proof["found"] if proof else (), str(one["source"])))
        if chosen:
            marks += stretch(whole, chosen.start, chosen.end, "chosen", f"the window {chosen}")
        rows = {region: _over(cells, own, whole) for region, cells in one["rows"].items()}
        dead = _over(one["dead"], own, whole) if one["dead"] else []
        made.append((str(one["source"]), bars(f"{one['source']}: rows over time", whole, rows, marks, dead)))
    return made


def _gaps(whole: Window, found: Iterable[Mapping[str, Any]], source: str) -> Iterator[str]:
    """Where offsets of the source are missing: when their messages were ingested, or between which others."""
    for one in found:
        gaps = zip(one["gaps"], one.get("gap_times") or (), strict=False)
        for (low, high), times in gaps if one["source"] == source else ():
            if times is not None:
                since, until = (datetime.fromisoformat(at) for at in times)
                where = f"region {one['region']}, partition {one['partition']}"
                title = f"missing: offsets {low} to {high} of {where}"
                yield stretch(whole, since, until + TICK, "gap", title)


def _published(run: Run) -> bool:
    return (run.publication or {}).get("state") == "published"


def _bounds(run: Run) -> tuple[datetime, datetime]:
    window = Window.parse(str(run.spec["start"]), str(run.spec["end"]))
    return window.start, window.end


def _over(cells: Sequence[int], own: Window, whole: Window, columns: int = 240) -> list[int]:
    """Counts over one stretch of time as counts over a longer one."""
    found = [0] * columns
    for place, count in enumerate(cells):
        at = own.start + own.length * (place + 0.5) / len(cells)
        found[min(columns - 1, int((at - whole.start) / whole.length * columns))] += count
    return found


def rows_within(seen: Observation, window: Window, regions: Sequence[str] = ()) -> list[dict[str, Any]]:
    """About how many rows and bytes of each source were ingested in the window, and whether it is complete."""
    found = []
    for one in seen.value or ():
        own = _window_of(one)
        total = sum(sum(cells) for cells in one["rows"].values())
        inside = 0.0
        for region, cells in one["rows"].items():
            if own is None or (regions and region not in regions):
                continue
            width = own.length / len(cells)
            for place, count in enumerate(cells):
                left = own.start + width * place
                common = min(left + width, window.end) - max(left, window.start)
                inside += count * max(common / width, 0.0)
        known = [at for region, at in one["complete_until"].items() if not regions or region in regions]
        found.append(
            {
                "source": one["source"],
                "rows": round(inside),
                "bytes": round(one["bytes"] * inside / total) if total else 0,
                "complete": bool(known) and min(datetime.fromisoformat(at) for at in known) >= window.end,
                "complete_until": min(known) if known else None,
            }
        )
    return found
