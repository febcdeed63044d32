"""The archive of an app: lag, completeness, files, dead letters, what keeping it costs; verify and compact."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from markupsafe import Markup

from rekappa.console.confirm import confirmed
from rekappa.console.context import console_of, core_of, page
from rekappa.console.draw import rounded, short
from rekappa.console.guard import form_of
from rekappa.console.pages.apps import archive_status
from rekappa.console.pages.backfill import overview, pictures
from rekappa.operations.changes import archive_change, router_change, sets
from rekappa.store.record import Kind
from rekappa.tasks.files import answer
from rekappa.tasks.start import tasks

router = APIRouter()
DAYS = 90


@router.get("/apps/{name}/archive")
def archive_page(request: Request, name: str) -> Response:
    core, console = core_of(request), console_of(request)
    app, loaded = core.app(name), core.loaded(name)
    words = (str(loaded.folder), *sets(loaded.overrides))
    letters = console.observed.ask("archive", "dead", *words, "--limit=20")
    cost = console.observed.ask("cost", *words, "--days=30", fresh=timedelta(minutes=30))
    asked = [one for one in tasks(core.home, app=name, limit=60) if one.words[:1] == ("archive",)]
    proof = next((one for one in asked if one.words[1] == "verify" and not one.state.going), None)
    return page(
        request,
        "archive.html",
        app=app,
        status=archive_status(console, app),
        pictures=pictures(core, name, overview(request, core, name), "", ""),
        letters=letters,
        cost=cost,
        chart=cost_chart(cost.value or []),
        proof=proof,
        proven=answer(core.home, proof.id) if proof else None,
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
    kafka = sum(one["kafka_price"] / one["days"] for one in found)
    archive = sum(one["archive_price"] / one["days"] for one in found)
    if not kafka and not archive:
        return Markup("")
    top, left, wide, tall = rounded(max(kafka, archive) * DAYS), 64, 880, 120
    drawn = []
    for share in (0.0, 0.5, 1.0):
        y = 8 + tall * (1 - share)
        drawn.append(
            f'<line class="rule" x1="{left}" x2="{left + wide}" y1="{y}" y2="{y}"/>'
            f'<text class="mark" x="{left - 8}" y="{y + 4}" text-anchor="end">{short(top * share)}</text>'
        )
    for number, each in enumerate((kafka, archive)):
        y = 8 + tall * (1 - each * DAYS / top)
        drawn.append(f'<polyline class="line c{number}" points="{left},{8 + tall} {left + wide},{y:.1f}"/>')
    for days in (0, 30, 60, 90):
        x = left + wide * days / DAYS
        anchor = "start" if days == 0 else "end" if days == DAYS else "middle"
        drawn.append(f'<text class="mark" x="{x}" y="{8 + tall + 20}" text-anchor="{anchor}">{days} days</text>')
    return Markup(
        f'<svg class="chart" viewBox="0 0 {left + wide + 12} {8 + tall + 24}" role="img" '
        f'aria-label="Price of a month by days kept">{"".join(drawn)}</svg>'
    )
