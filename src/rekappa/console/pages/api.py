"""The same data as the commands' `--json`, for programs."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from rekappa.config.explain import masked
from rekappa.console.context import console_of, core_of
from rekappa.console.pages.apps import archive_status
from rekappa.operations.runs import run_document, runs_document
from rekappa.shown import plain
from rekappa.tasks.standing import task, tasks

router = APIRouter(prefix="/api")
MOST = 10_000


@router.get("/runs")
def runs(request: Request, app: str | None = None, limit: int | None = None) -> JSONResponse:
    """`rekappa runs --json`."""
    store = core_of(request).store()
    return JSONResponse(
        runs_document(store.runs(app) if limit is None else store.page(min(max(1, limit), MOST), app=app))
    )


@router.get("/runs/{run_id}")
def run(request: Request, run_id: str) -> JSONResponse:
    """`rekappa runs RUN --json`."""
    return JSONResponse(run_document(core_of(request).store(), run_id))


@router.get("/jobs")
def jobs(request: Request) -> JSONResponse:
    """`rekappa jobs --all --json`."""
    return JSONResponse(plain(tasks(console_of(request).home)))


@router.get("/jobs/{task_id}")
def job(request: Request, task_id: str) -> JSONResponse:
    """`rekappa jobs JOB --json`."""
    return JSONResponse(plain(task(console_of(request).home, task_id)))


@router.get("/apps")
def apps(request: Request) -> JSONResponse:
    found: list[dict[str, Any]] = [
        {
            "app": one.name,
            "folder": str(one.folder),
            "problem": one.problem,
            "config": one.loaded and masked(one.loaded),
        }
        for one in core_of(request).apps()
    ]
    return JSONResponse(plain(found))


@router.get("/apps/{name}/archive")
def archive(request: Request, name: str) -> JSONResponse:
    """What `rekappa archive status APP --json` said last, and when."""
    seen = archive_status(console_of(request), core_of(request).app(name))
    return JSONResponse(plain({"at": seen.at, "error": seen.error, "status": seen.value}))


@router.get("/audit")
def audit(request: Request, app: str | None = None, run: str | None = None, limit: int = 300) -> JSONResponse:
    return JSONResponse(plain(core_of(request).desk().deeds(app=app, run=run, limit=min(max(1, limit), MOST))))
