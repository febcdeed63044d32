"""The console as an ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from rekappa.console import metrics
from rekappa.console.alerts import Watcher
from rekappa.console.context import HERE, Console, page
from rekappa.console.guard import Denied, Guard, SecurityHeaders
from rekappa.console.pages import advise, api, apps, archive, backfill, checkpoints, login, proof, runs, tasks, topics
from rekappa.errors import RekappaError
from rekappa.masking import hidden
from rekappa.store.desk import Desk

PAGES = (login, apps, proof, runs, backfill, archive, checkpoints, advise, tasks, topics, api, metrics)


def make_app(console: Console, *, hosts: Sequence[str] = (), watcher: Watcher | None = None) -> FastAPI:
    """`hosts` are the names it answers to, any if empty."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.stopping = asyncio.Event()
        watching = asyncio.create_task(watcher.watch()) if watcher else None
        yield
        app.state.stopping.set()
        if watching is not None:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
        console.observed.close()

    guard = Guard(Desk.open(console.home), hosts, console.secure)
    app = FastAPI(
        title="rekappa",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
        dependencies=[Depends(guard)],
    )
    app.state.console = console
    app.state.guard = guard
    app.add_middleware(SecurityHeaders, secure=console.secure)
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    for one in PAGES:
        app.include_router(one.router)
    app.add_exception_handler(Denied, _denied)
    app.add_exception_handler(RekappaError, _refused)
    app.add_exception_handler(HTTPException, _missing)
    return app


def wants_json(request: Request) -> bool:
    accept = request.headers.get("accept", "")
    return request.url.path.startswith("/api/") or ("application/json" in accept and "text/html" not in accept)


async def _denied(request: Request, error: Exception) -> Response:
    assert isinstance(error, Denied)
    if wants_json(request) or request.url.path == "/metrics":
        return JSONResponse({"error": error.why}, error.status)
    if error.login is not None and "text/event-stream" not in request.headers.get("accept", ""):
        return RedirectResponse(error.login, 303)
    return page(request, "error.html", error.status, message=error.why, hint=None)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RekappaError)
    message, hint = hidden(error.message), hidden(error.hint) if error.hint else None
    status = 404 if message.startswith("Cannot find") else 409
    if wants_json(request):
        return JSONResponse({"error": message, "hint": hint}, status)
    return page(request, "error.html", status, message=message, hint=hint)


async def _missing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    told = "There is no such page." if error.status_code == 404 else str(error.detail)
    if wants_json(request):
        return JSONResponse({"error": told}, error.status_code)
    return page(request, "error.html", error.status_code, message=told, hint=None)
