"""The archive of an app: lag, completeness, files, dead letters, what keeping it costs; verify and compact."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from markupsafe import Markup

from rekappa.console.archived import last_proof, overview, pictures
from rekappa.console.confirm import confirmed
from rekappa.console.context import console_of, core_of, page
from rekappa.console.draw import grown
from rekappa.console.guard import form_of
from rekappa.console.pages.apps import archive_status
from rekappa.operations.changes import archive_change, router_change, sets
from rekappa.store.record import Kind
from rekappa.tasks.standing import tasks

router = APIRouter()
DAYS = 90


@router.get("/apps/{name}/archive")
def archive_page(request: Request, name: str) -> Response:
    core, console = core_of(request), console_of(request)
    app, loaded = core.app(name), core.loaded(name)
    words = (str(loaded.folder), *sets(loaded.overrides))
    letters = console.observed.ask("archive", "dead", *words, "--limit=20")
    cost = console.observed.ask("cost", *words, "--days=30", fresh=timedelta(minutes=30))
    proof = last_proof(core, name)
    asked = [one for one in tasks(core.home, app=name, limit=60) if one.words[:1] == ("archive",)]
    return page(
        request,
        "archive.html",
        app=app,
        status=archive_status(console, app),
        pictures=pictures(core, name, overview(request, core, name), proof),
        letters=letters,
        cost=cost,
        chart=cost_chart(cost.value or []),
        proof=proof,
        router=next(iter(core.store().page(1, app=name, kind=Kind.ARCHIVE)), None),
        tasks=asked[:6],
    )


@router.post("/apps/{name}/archive/{verb}")
async def change_archive(request: Request, name: str, verb: str) -> Response:
    core = core_of(request)
    change = router_change(core, name) if verb == "run" else archive_change(core, name, verb)
    return confirmed(request, await form_of(request), change, f"/apps/{name}/archive")


def cost_chart(found: list[dict[str, Any]]) -> Markup:
    """A month of keeping N days, in Kafka and in the archive: both grow with the days."""
    rates = {
        "Kafka": sum(one["kafka_price"] / one["days"] for one in found),
        "archive": sum(one["archive_price"] / one["days"] for one in found),
    }
    return grown("Price of a month by days kept", rates, DAYS)
