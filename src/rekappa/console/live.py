"""Parts of a page that change while one looks: the server sends them anew (server-sent events) when they differ."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from rekappa.console.guard import session
from rekappa.store.people import UserRole

PAUSE = 1.0
QUIET = 15
"""After so many looks without a change a comment is sent, so that proxies keep the connection."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of HTML. `over`: it will not change any more. `go`: where to look instead."""

    html: str
    over: bool = False
    go: str | None = None


def live(request: Request, part: Callable[[], Fragment]) -> Response:
    """The part as a stream; asked for without a stream, as it is now."""
    if "text/event-stream" not in request.headers.get("accept", ""):
        return Response(part().html, media_type="text/html")
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(_events(request, part), media_type="text/event-stream", headers=headers)


async def _events(request: Request, part: Callable[[], Fragment]) -> AsyncIterator[str]:
    last, quiet = None, 0
    stopping: asyncio.Event = request.app.state.stopping
    while not stopping.is_set() and not await request.is_disconnected():
        # Who has logged out meanwhile, or has another role now, is told nothing more.
        if await run_in_threadpool(_role_now, request) != session(request).role:
            return
        now = await run_in_threadpool(part)
        if now.html != last:
            last, quiet = now.html, 0
            yield _event("part", now.html)
        else:
            quiet += 1
            if quiet % QUIET == 0:
                yield ": still here\n\n"
        if now.go:
            yield _event("go", now.go)
            return
        if now.over:
            yield _event("over", "")
            return
        try:
            await asyncio.wait_for(stopping.wait(), PAUSE)
        except TimeoutError:
            continue


def _role_now(request: Request) -> UserRole | None:
    found, _ = request.app.state.guard.session_of(request)
    return found.role if found else None


def _event(name: str, text: str) -> str:
    return f"event: {name}\n" + "".join(f"data: {line}\n" for line in text.split("\n")) + "\n"
