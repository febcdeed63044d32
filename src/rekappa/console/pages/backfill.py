"""Backfill: a window picked on the archive's picture, the plan as it changes, and the start."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response

from rekappa.console.archived import last_proof, overview, pictures, rows_within, time_of
from rekappa.console.confirm import SURE, confirmed
from rekappa.console.context import console_of, core_of, fragment, page
from rekappa.console.guard import FORM_KEY, Form, form_of, session
from rekappa.console.live import Fragment, live
from rekappa.console.pages.apps import known_regions
from rekappa.errors import RekappaError
from rekappa.operations.changes import begin
from rekappa.operations.window import MARGINS, MODES, WindowForm, backfill_change, plan_change
from rekappa.store.record import Kind
from rekappa.tasks.ending import stop_task
from rekappa.tasks.files import answer
from rekappa.tasks.standing import task, tasks
from rekappa.timeline import Window, format_instant

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
    shown = time_of(seen)
    plan, proof = told.get("plan"), last_proof(core, name)
    planned = (answer(core.home, plan) or {}).get("window") if plan else None
    start, end = (planned["start"], planned["end"]) if planned else _suggested(shown)
    start, end = (asked.start, asked.end) if asked.start and asked.end else (start, end)
    return page(
        request,
        "backfill.html",
        app=core.app(name),
        seen=seen,
        pictures=pictures(core, name, seen, proof, start, end),
        form=asked,
        start=start,
        end=end,
        modes=MODES,
        margins=MARGINS,
        regions=known_regions(core, name),
        sinks=list(core.loaded(name).config.sinks),
        proof=proof,
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


def _suggested(shown: Window | None) -> tuple[str, str]:
    """The last whole hour that the archive holds."""
    end = (shown.end if shown else datetime.now(UTC)).replace(minute=0, second=0, microsecond=0)
    return format_instant(end - timedelta(hours=1)), format_instant(end)
