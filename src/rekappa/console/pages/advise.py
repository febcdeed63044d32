"""Advice: an outage, which recovery fits it, why, and the button that begins it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from rekappa.console.confirm import confirmed
from rekappa.console.context import asked, console_of, core_of, fragment, page
from rekappa.console.graph import downstream, handovers
from rekappa.console.guard import form_of
from rekappa.console.live import Fragment, live
from rekappa.operations.advice import STATES, TROUBLES, OutageForm, advise_change, bootstrap_change, next_steps
from rekappa.operations.changes import begin
from rekappa.operations.core import Core
from rekappa.tasks.files import answer
from rekappa.tasks.standing import task, tasks
from rekappa.timeline import format_instant

router = APIRouter()


@router.get("/apps/{name}/advise")
def advise_page(request: Request, name: str) -> Response:
    core, told = core_of(request), asked(request)
    apps = core.apps()
    chosen = told.get("task") or _last(core, name)
    end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    form = OutageForm(
        told.get("start") or format_instant(end - timedelta(hours=1)),
        told.get("end") or format_instant(end),
        told.get("trouble", ""),
        told.get("state", ""),
    )
    return page(
        request,
        "advise.html",
        app=core.app(name),
        form=form,
        troubles=TROUBLES,
        states=STATES,
        reached=downstream(name, handovers(apps)),
        task=chosen,
        part=_advice(request, name, chosen).html if chosen else "",
    )


def _last(core: Core, name: str) -> str | None:
    """The newest advice that was asked for: it stays on the page until another is."""
    return next((one.id for one in tasks(core.home, app=name, limit=60) if one.words[0] == "advise"), None)


@router.post("/apps/{name}/advise")
async def ask(request: Request, name: str) -> Response:
    form, core = await form_of(request), core_of(request)
    told = OutageForm(form.get("start"), form.get("end"), form.get("trouble"), form.get("state"))
    made = begin(core, advise_change(core, name, told))
    query = urlencode({"start": told.start, "end": told.end, "trouble": told.trouble, "state": told.state})
    return RedirectResponse(f"/apps/{name}/advise?{query}&task={made.id}", 303)


@router.get("/live/apps/{name}/advice/{task_id}")
def live_advice(request: Request, name: str, task_id: str) -> Response:
    return live(request, lambda: _advice(request, name, task_id))


def _advice(request: Request, name: str, task_id: str) -> Fragment:
    home = console_of(request).home
    made = task(home, task_id)
    told = answer(home, task_id) if not made.state.going else None
    found = [{**one, "steps": next_steps(one)} for one in told["advice"]] if told else []
    facts = told["facts"] if told else None
    html = fragment(request, "_advice.html", task=made, app=name, facts=facts, found=found)
    return Fragment(html, over=not made.state.going)


@router.post("/apps/{name}/bootstrap")
async def bootstrap(request: Request, name: str) -> Response:
    form = await form_of(request)
    return confirmed(request, form, bootstrap_change(core_of(request), name, form.get("since")))
