"""Tasks: one command in a process of its own, its answer and its log; and the audit trail."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from rekappa.console.confirm import confirmed
from rekappa.console.context import console_of, core_of, fragment, page
from rekappa.console.guard import form_of
from rekappa.console.live import Fragment, live
from rekappa.operations.jobs import dismiss_change, stop_job_change
from rekappa.tasks.files import answer, log_file, tail
from rekappa.tasks.standing import orphan, task, tasks

router = APIRouter()


@router.get("/tasks")
def list_tasks(request: Request) -> Response:
    return page(request, "tasks.html", tasks=tasks(console_of(request).home, limit=100))


@router.get("/tasks/{task_id}")
def one_task(request: Request, task_id: str) -> Response:
    return page(request, "task.html", task=task(console_of(request).home, task_id), part=_part(request, task_id).html)


@router.get("/live/tasks/{task_id}")
def live_task(request: Request, task_id: str) -> Response:
    return live(request, lambda: _part(request, task_id))


def _part(request: Request, task_id: str) -> Fragment:
    home = console_of(request).home
    found = task(home, task_id)
    html = fragment(
        request,
        "_task.html",
        task=found,
        orphan=orphan(found),
        lines=tail(log_file(home, task_id), 120),
        answer=answer(home, task_id) if not found.state.going else None,
    )
    follow = found.words[0] in ("backfill", "run") and found.run is not None and found.state.going
    return Fragment(html, over=not found.state.going, go=f"/runs/{found.run}" if follow else None)


@router.post("/tasks/{task_id}/stop")
async def stop(request: Request, task_id: str) -> Response:
    found = task(console_of(request).home, task_id)
    return confirmed(request, await form_of(request), stop_job_change(found), f"/tasks/{task_id}")


@router.post("/tasks/{task_id}/dismiss")
async def dismiss(request: Request, task_id: str) -> Response:
    found = task(console_of(request).home, task_id)
    return confirmed(request, await form_of(request), dismiss_change(found), f"/tasks/{task_id}")


@router.get("/audit")
def audit(request: Request) -> Response:
    return page(request, "audit.html", deeds=core_of(request).desk().deeds(limit=300))
