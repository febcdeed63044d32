"""Checkpoints: where a job can be restarted from."""

from __future__ import annotations

from importlib.util import find_spec

from fastapi import APIRouter, Request
from fastapi.responses import Response

from rekappa.console.context import core_of, page
from rekappa.store.record import Kind

router = APIRouter()


@router.get("/apps/{name}/checkpoints")
def checkpoints(request: Request, name: str) -> Response:
    core = core_of(request)
    store = core.store()
    live = store.page(10, app=name, kind=Kind.LIVE)
    return page(request, "checkpoints.html", app=core.app(name), runs=live, recovery=find_spec("rekappa.recovery"))
