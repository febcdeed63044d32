"""Backfill: a window picked on the archive's picture, the plan as it changes, and the start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from markupsafe import Markup

from rekappa.console.confirm import SURE, confirmed
from rekappa.console.context import console_of, core_of, fragment, page
from rekappa.console.draw import bars, stretch
from rekappa.console.guard import FORM_KEY, Form, form_of, session
from rekappa.console.live import Fragment, live
from rekappa.console.observed import Observation
from rekappa.console.pages.apps import known_regions
from rekappa.errors import RekappaError
from rekappa.operations.changes import begin, sets
from rekappa.operations.core import Core
from rekappa.operations.window import MARGINS, MODES, WindowForm, backfill_change, plan_change
from rekappa.store.record import Kind, Run
from rekappa.tasks.ending import stop_task
from rekappa.tasks.files import answer
from rekappa.tasks.standing import task, tasks
from rekappa.timeline import TICK, Window, format_instant

router = APIRouter()
NO_WINDOW = "X-No-Window"
"""Says to the page that there is nothing to plan yet."""


def window_form(form: Form) -> WindowForm:
    margins = {name: form.get(name) for name in MARGINS}
    settings = tuple(line.strip() for line in form.get("settings").splitlines() if line.strip())
    return WindowForm(
        form.get("start"), form.get("end"), form.all("region"), form.get("mode") or "auto", margins, settings,
        form.on("allow_incomplete"), form.all("sink"),
    )  # fmt: skip


@router.get("/apps/{name}/backfill")
def backfill_page(request: Request, name: str) -> Response:
    core = core_of(request)
    told = Form({key: request.query_params.getlist(key) for key in request.query_params})
    asked = window_form(told)
    seen = overview(request, core, name)
    shown = _shown(seen)
    plan = told.get("plan")
    planned = (answer(core.home, plan) or {}).get("window") if plan else None
    start, end = (planned["start"], planned["end"]) if planned else _suggested(shown)
    start, end = (asked.start, asked.end) if asked.start and asked.end else (start, end)
    return page(
        request,
        "backfill.html",
        app=core.app(name),
        seen=seen,
        pictures=pictures(core, name, seen, start, end),
        form=asked,
        start=start,
        end=end,
        modes=MODES,
        margins=MARGINS,
        regions=known_regions(core, name),
        sinks=list(core.loaded(name).config.sinks),
        proof=last_proof(core, name),
        kept=core.desk().overrides(name),
        plan=_plan(request, plan).html if plan else "",
        plan_task=plan,
        earlier=core.store().page(8, app=name, kind=Kind.BACKFILL),
    )


@router.post("/apps/{name}/plan")
async def make_plan(request: Request, name: str) -> Response:
    """Plan what the form says; a plan that the same person asked for before, and that is not made yet, is given up."""
    form, core = await form_of(request), core_of(request)
    change = plan_change(core, name, window_form(form))
    under_way = [one for one in tasks(core.home, app=name) if one.words[0] == "plan" and one.state.going]
    same = next((one for one in under_way if one.words == change.words), None)
    for one in under_way:
        if one.who == session(request).name and one is not same:
            stop_task(core.home, one.id)
    made = same or begin(core, change)
    if "application/json" in request.headers.get("accept", ""):
        return JSONResponse({"task": made.id, "live": f"/live/plans/{made.id}"})
    query = urlencode(form.rest(FORM_KEY, "plan"))
    return RedirectResponse(f"/apps/{name}/backfill?{query}&plan={made.id}", 303)


@router.get("/live/plans/{task_id}")
def live_plan(request: Request, task_id: str) -> Response:
    return live(request, lambda: _plan(request, task_id))


def _plan(request: Request, task_id: str) -> Fragment:
    home = console_of(request).home
    made = task(home, task_id)
    told = answer(home, task_id) if not made.state.going else None
    return Fragment(fragment(request, "_plan.html", task=made, plan=told), over=not made.state.going)


@router.post("/apps/{name}/backfill")
async def start_backfill(request: Request, name: str) -> Response:
    form = await form_of(request)
    change = backfill_change(core_of(request), name, window_form(form))
    # A no leads back to the form as it was filled in.
    back = f"/apps/{name}/backfill?{urlencode(form.rest(FORM_KEY, SURE))}"
    return confirmed(request, form, change, back=back)


@router.get("/apps/{name}/estimate")
def estimate(request: Request, name: str) -> Response:
    """What the window holds, from what is known of the archive: at once, while one edits."""
    core = core_of(request)
    told = request.query_params
    try:
        window = Window.parse(told.get("start", ""), told.get("end", ""))
    except RekappaError as error:
        html = fragment(request, "_estimate.html", problem=error.message, rows=[])
        return Response(html, media_type="text/html", headers={NO_WINDOW: "true"})
    regions = told.getlist("region")
    rows = rows_within(overview(request, core, name), window, regions)
    html = fragment(request, "_estimate.html", problem=None, rows=rows, window=window)
    return Response(html, media_type="text/html")


def last_proof(core: Core, name: str) -> dict[str, Any] | None:
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


def _shown(seen: Observation) -> Window | None:
    """The time that all sources together cover."""
    found = [window for one in seen.value or () if (window := _window_of(one))]
    return Window(min(one.start for one in found), max(one.end for one in found)) if found else None


def _suggested(shown: Window | None) -> tuple[str, str]:
    """The last whole hour that the archive holds."""
    end = (shown.end if shown else datetime.now(UTC)).replace(minute=0, second=0, microsecond=0)
    return format_instant(end - timedelta(hours=1)), format_instant(end)


def pictures(core: Core, name: str, seen: Observation, start: str, end: str) -> list[tuple[str, Markup]]:
    """One picture for each source, all over the same time: rows, completeness, gaps, publications, the window."""
    whole = _shown(seen)
    if whole is None:
        return []
    try:
        chosen: Window | None = Window.parse(start, end)
    except RekappaError:
        chosen = None
    proof = last_proof(core, name)
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
