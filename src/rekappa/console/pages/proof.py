"""The validation of a backfill, its publication, and taking that back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from markupsafe import Markup

from rekappa.console.confirm import confirmed
from rekappa.console.context import core_of, fragment, page
from rekappa.console.guard import Form, form_of
from rekappa.console.live import Fragment, live
from rekappa.errors import PublishError
from rekappa.operations.changes import begin, effect_change, publish_change, undo_change, validate_change
from rekappa.operations.core import Core
from rekappa.store.record import Run, State
from rekappa.store.task import Task, TaskState
from rekappa.tasks.files import answer
from rekappa.tasks.standing import tasks
from rekappa.validate.html import sections
from rekappa.validate.kept import verdict_of
from rekappa.validate.result import Outcome, outcome_of

router = APIRouter()


@router.get("/runs/{run_id}/validation")
def validation(request: Request, run_id: str) -> Response:
    core = core_of(request)
    run = core.store().run(run_id)
    return page(request, "validation.html", run=run, part=_validation(request, core, run_id).html, **_expectations(run))


@router.get("/live/runs/{run_id}/validation")
def live_validation(request: Request, run_id: str) -> Response:
    core = core_of(request)
    return live(request, lambda: _validation(request, core, run_id))


def _validation(request: Request, core: Core, run_id: str) -> Fragment:
    run = core.store().run(run_id)
    asked = [one for one in tasks(core.home, run=run.id, limit=30) if one.words[0] == "validate"][:1]
    going = any(one.state.going for one in asked)
    verdict = verdict_of(run.validation)
    html = fragment(
        request,
        "_validation.html",
        run=run,
        verdict=verdict,
        body=Markup(sections(verdict)) if verdict else None,
        tasks=asked,
        controls=core.store().controls(run),
    )
    return Fragment(html, over=not going)


def _expectations(run: Run) -> dict[str, Any]:
    """What was expected of each sink the last time, to be edited."""
    told = {one["sink"]: one.get("expected") or "" for one in (run.validation or {}).get("sinks", ())}
    names = run.spec.get("sinks") or list(told)
    return {"expected": {name: told.get(name, "") for name in names}}


@router.post("/runs/{run_id}/validate")
async def validate(request: Request, run_id: str) -> Response:
    form = await form_of(request)
    run = core_of(request).store().run(run_id)
    several = len(run.spec.get("sinks") or ()) > 1
    texts = {name.removeprefix("expect "): form.get(name) for name in form.fields if name.startswith("expect ")}
    expect = [f"{sink}: {text}" if several else text for sink, text in texts.items() if text]
    late = form.get("late") if form.get("late") in ("keep", "drop") else None
    change = validate_change(run, expect=expect, late=late, final_only=form.on("final_only"))
    return confirmed(request, form, change, f"/runs/{run.id}/validation")


@dataclass(frozen=True, slots=True)
class ShownEffect:
    """What publishing would do, as a task found out. `current`: nothing was judged, published or undone since."""

    task: Task
    answer: Any
    current: bool


@router.get("/runs/{run_id}/publish")
def publication(request: Request, run_id: str) -> Response:
    core = core_of(request)
    run = core.store().run(run_id)
    deeds = [one for one in core.desk().deeds(run=run.id) if one.what in ("publish", "undo", "validate", "backfill")]
    return page(request, "publish.html", run=run, part=_publication(request, core, run_id).html, deeds=deeds)


@router.get("/live/runs/{run_id}/publish")
def live_publication(request: Request, run_id: str) -> Response:
    core = core_of(request)
    return live(request, lambda: _publication(request, core, run_id))


def _publication(request: Request, core: Core, run_id: str) -> Fragment:
    run = core.store().run(run_id)
    asked = [one for one in tasks(core.home, run=run.id, limit=30) if one.words[0] in ("publish", "undo")]
    under_way = next((one for one in asked if one.state.going), None)
    outcome = outcome_of(run.validation)
    html = fragment(
        request,
        "_publish.html",
        run=run,
        outcome=outcome,
        needs_yes=outcome is Outcome.NEEDS_YES,
        published=(run.publication or {}).get("state") == "published",
        undoable=(run.publication or {}).get("state") not in (None, "undone"),
        finished=run.state is State.FINISHED,
        effect=shown_effect(core, run, asked),
        under_way=under_way,
        last=asked[0] if asked else None,
    )
    return Fragment(html, over=under_way is None)


def shown_effect(core: Core, run: Run, asked: list[Task]) -> ShownEffect | None:
    """The newest effect that was found out, if any."""
    dry = next((one for one in asked if "--dry-run" in one.words and one.state is TaskState.DONE), None)
    if dry is None:
        return None
    marks = [(run.validation or {}).get("at"), (run.publication or {}).get("at")]
    since = max((datetime.fromisoformat(str(one)) for one in marks if one), default=None)
    return ShownEffect(dry, answer(core.home, dry.id), since is None or dry.created > since)


def _flags(form: Form) -> dict[str, bool]:
    return {"accept": form.on("accept"), "unvalidated": form.on("unvalidated"), "force": form.on("force")}


@router.post("/runs/{run_id}/effect")
async def effect(request: Request, run_id: str) -> Response:
    """Find out what publishing would do; changes nothing, so it does not ask."""
    form, core = await form_of(request), core_of(request)
    run = core.store().run(run_id)
    begin(core, effect_change(run, **_flags(form)))
    return RedirectResponse(f"/runs/{run.id}/publish", 303)


@router.post("/runs/{run_id}/publish")
async def publish(request: Request, run_id: str) -> Response:
    """Refused unless the effect was shown, and is still what would happen as far as the store knows."""
    form, core = await form_of(request), core_of(request)
    run = core.store().run(run_id)
    shown = shown_effect(core, run, tasks(core.home, run=run.id, limit=30))
    if shown is None or not shown.current or shown.task.id != form.get("effect"):
        raise PublishError(
            f"Cannot publish run {run.id}: its effect was not shown, or something has changed since",
            hint="Look at the effect again, then publish.",
        )
    return confirmed(request, form, publish_change(run, **_flags(form)), f"/runs/{run.id}/publish")


@router.post("/runs/{run_id}/undo")
async def undo(request: Request, run_id: str) -> Response:
    form, core = await form_of(request), core_of(request)
    run = core.store().run(run_id)
    return confirmed(request, form, undo_change(run, force=form.on("force")), f"/runs/{run.id}/publish")
