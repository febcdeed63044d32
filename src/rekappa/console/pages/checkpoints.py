"""Checkpoints: what a live job can be restarted from, keeping such a point, and restarting from one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from rekappa.console.confirm import confirmed
from rekappa.console.context import console_of, core_of, fragment, page
from rekappa.console.graph import downstream, handovers
from rekappa.console.guard import Form, form_of
from rekappa.console.live import Fragment, live
from rekappa.operations.changes import begin, sets
from rekappa.operations.core import Core
from rekappa.operations.points import (
    RestartFrom,
    drop_change,
    rewind_change,
    savepoint_change,
    undo_rewind_change,
)
from rekappa.store.record import Kind
from rekappa.tasks.files import answer
from rekappa.tasks.standing import task, tasks

router = APIRouter()
SHOWN = 15


@router.get("/apps/{name}/checkpoints")
def checkpoints(request: Request, name: str) -> Response:
    core, console = core_of(request), console_of(request)
    loaded = core.loaded(name)
    newest = next(iter(core.store().page(1, app=name, kind=Kind.LIVE)), None)
    words = ("checkpoints", str(loaded.folder), *sets(loaded.overrides))
    seen = console.observed.ask(*words, fresh=timedelta(seconds=20)) if newest else None
    asked = [one for one in tasks(core.home, app=name, limit=60) if one.words[0] in ("savepoint", "rewind")]
    dry = next((one for one in asked if "--dry-run" in one.words), None)
    return page(
        request,
        "checkpoints.html",
        app=core.app(name),
        live=newest,
        seen=seen,
        points=_newest(seen.value or []) if seen else {},
        reached=downstream(name, handovers(core.apps())),
        chained=_chained(core, name),
        rewound="rewind" in newest.spec if newest else False,
        part=_effect(request, dry.id).html if dry else "",
        dry=dry,
        tasks=asked[:6],
    )


@router.get("/live/rewinds/{task_id}")
def live_effect(request: Request, task_id: str) -> Response:
    return live(request, lambda: _effect(request, task_id))


def _effect(request: Request, task_id: str) -> Fragment:
    """What a rewind would do, as its dry run found out."""
    home = console_of(request).home
    dry = task(home, task_id)
    told = answer(home, task_id) if not dry.state.going else None
    return Fragment(fragment(request, "_rewind.html", task=dry, effect=told), over=not dry.state.going)


def _newest(found: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The newest points of each query, newest first, and all that are kept by name."""
    by_query: dict[str, list[dict[str, Any]]] = {}
    for one in reversed(found):
        rows = by_query.setdefault(str(one["query"]), [])
        if len(rows) < SHOWN or one["savepoint"]:
            rows.append(one)
    return by_query


@router.post("/apps/{name}/savepoint")
async def take(request: Request, name: str) -> Response:
    form = await form_of(request)
    change = savepoint_change(core_of(request), name, form.get("name"))
    return confirmed(request, form, change, f"/apps/{name}/checkpoints")


@router.post("/apps/{name}/drop-savepoint")
async def drop(request: Request, name: str) -> Response:
    form = await form_of(request)
    change = drop_change(core_of(request), name, form.get("name"))
    return confirmed(request, form, change, f"/apps/{name}/checkpoints")


def _chained(core: Core, name: str) -> list[str]:
    """The apps that a rewind can take back too: those that its topics reach."""
    topics = [one for one in handovers(core.apps()) if one.what.startswith("topic ")]
    return downstream(name, topics)


def _point(form: Form) -> RestartFrom:
    return RestartFrom(form.get("to"), form.get("savepoint"), form.on("new"), form.on("nothing"))


@router.post("/apps/{name}/rewind")
async def rewind(request: Request, name: str) -> Response:
    """With `look`, find out what it would do; with `undo`, take the last one back; else ask, then do it."""
    form, core = await form_of(request), core_of(request)
    if form.on("undo"):
        return confirmed(request, form, undo_rewind_change(core, name), f"/apps/{name}/checkpoints")
    with_it = _chained(core, name) if form.on("cascade") else []
    if form.on("look"):
        begin(core, rewind_change(core, name, _point(form), with_it=with_it, dry=True))
        return RedirectResponse(f"/apps/{name}/checkpoints", 303)
    return confirmed(request, form, rewind_change(core, name, _point(form), with_it=with_it))
