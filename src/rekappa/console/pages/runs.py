"""Runs, and one run: how far it is, how it went, its log, and what may be asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from markupsafe import Markup

from rekappa.console.confirm import confirmed
from rekappa.console.context import asked, core_of, fragment, page
from rekappa.console.draw import Line, lines
from rekappa.console.guard import Denied, form_of
from rekappa.console.live import Fragment, live
from rekappa.errors import RunError
from rekappa.operations.changes import run_change
from rekappa.operations.core import Core
from rekappa.store.kept import kept_files
from rekappa.store.record import Kind, Run, State
from rekappa.store.samples import Sampled
from rekappa.tasks.files import log_file, tail
from rekappa.tasks.standing import tasks
from rekappa.timeline import parse_instant

router = APIRouter()
PAGE = 50
VERBS = ("pause", "resume", "cancel", "stop")


@router.get("/runs")
def list_runs(request: Request) -> Response:
    told, store = asked(request), core_of(request).store()
    chosen = {
        "app": told.get("app") or None,
        "kind": _word(Kind, told.get("kind")),
        "state": _word(State, told.get("state")),
    }
    before = _moment(told["before"]) if told.get("before") else None
    found = store.page(PAGE + 1, before=before, **chosen)
    apps = sorted({app for app, _, _ in store.counts()})
    shown = found[:PAGE]
    older = shown[-1].created.isoformat() if len(found) > PAGE else None
    return page(
        request, "runs.html", runs=shown, older=older, chosen=told, apps=apps, kinds=list(Kind), states=list(State)
    )


def _moment(text: str) -> datetime:
    try:
        return parse_instant(text)
    except ValueError:
        raise Denied(400, f"{text!r} is no time.") from None


def _word(words: Any, text: str | None) -> Any:
    return words(text) if text in {one.value for one in words} else None


@router.get("/runs/{run_id}")
def one_run(request: Request, run_id: str) -> Response:
    core = core_of(request)
    run = core.store().run(run_id)
    deeds = core.desk().deeds(run=run.id, limit=20)
    starts = core.store().starts(run.id)
    return page(
        request,
        "run.html",
        run=run,
        part=_part(request, core, run.id).html,
        deeds=deeds,
        starts=starts,
        controls=core.store().controls(run) if run.kind is Kind.BACKFILL else [],
    )


@router.get("/runs/{run_id}/code")
def code(request: Request, run_id: str) -> Response:
    """The app's files as the run had them; secrets were masked when they were kept."""
    core = core_of(request)
    run = core.store().run(run_id)
    hashes = list(dict.fromkeys(one.code.hash for one in core.store().starts(run.id) if one.code.hash))
    wanted = asked(request).get("hash") or (hashes[-1] if hashes else None)
    if wanted is not None and wanted not in hashes:
        raise RunError(f"Cannot find code {wanted[:12]!r} among what run {run.id} ran")
    files = (
        {name: text.decode("utf-8", "replace") for name, text in kept_files(core.home, wanted).items()}
        if wanted
        else {}
    )
    return page(request, "code.html", run=run, files=files, hashes=hashes, wanted=wanted)


@router.get("/live/runs/{run_id}")
def live_run(request: Request, run_id: str) -> Response:
    core = core_of(request)
    return live(request, lambda: _part(request, core, run_id))


@router.post("/runs/{run_id}/{verb}")
async def change_run(request: Request, run_id: str, verb: str) -> Response:
    if verb not in VERBS:
        raise RunError(f"Cannot find what to do: {verb!r}")
    run = core_of(request).store().run(run_id)
    return confirmed(request, await form_of(request), run_change(run, verb), f"/runs/{run.id}")


def _part(request: Request, core: Core, run_id: str) -> Fragment:
    run = core.store().run(run_id)
    started = tasks(core.home, run=run.id, limit=10)
    logs = [core.home.logs / name for name in run.logs[-1:]]
    own = [log_file(core.home, one.id) for one in started if one.words[0] in ("run", "backfill", "resume", "archive")]
    told = [line for file in (*own[:1], *logs) for line in tail(file, 60)]
    html = fragment(
        request,
        "_run.html",
        run=run,
        units=_units(run),
        charts=charts(core.store().samples(run.id)),
        lines=told[-120:],
        tasks=started,
        verbs=_allowed(run),
    )
    return Fragment(html, over=not run.state.going and not any(one.state.going for one in started))


def _allowed(run: Run) -> list[str]:
    """What may be asked of the run now."""
    found = []
    for verb in VERBS if run.kind in (Kind.BACKFILL, Kind.CONTROL) else ("stop",):
        try:
            run_change(run, verb)
        except RunError:
            continue
        if not (verb == "stop" and run.kind in (Kind.BACKFILL, Kind.CONTROL)):
            found.append(verb)
    return found


def _units(run: Run) -> list[dict[str, Any]]:
    """The run's jobs, queries or routes, each with the names that the page has for their figures."""
    kinds = (("jobs", "job"), ("queries", "query"), ("routes", "source"))
    return [{**one, "name": one.get(name)} for kind, name in kinds for one in run.progress.get(kind) or ()]


def charts(found: Sequence[Sampled]) -> list[Markup]:
    """How the run went: rows per second, lag and state over time."""
    speed: dict[str, list[tuple[datetime, float]]] = {}
    for before, after in pairwise(found):
        seconds = max((after.at - before.at).total_seconds(), 0.001)
        earlier = dict(_figure(before, "rows"))
        for name, rows in _figure(after, "rows"):
            speed.setdefault(name, []).append((after.at, max(0.0, rows - earlier.get(name, 0)) / seconds))
    drawn = [("Rows per second", speed)]
    for title, key in (
        ("Events behind", "lag"),
        ("Events behind", "behind"),
        ("Rows in state", "state_rows"),
        ("Late rows", "late_rows"),
    ):
        values: dict[str, list[tuple[datetime, float]]] = {}
        for one in found:
            for name, value in _figure(one, key):
                values.setdefault(name, []).append((one.at, value))
        drawn.append((title, {name: points for name, points in values.items() if any(value for _, value in points)}))
    made = [(title, lines(title, [Line(name, points) for name, points in each.items()])) for title, each in drawn]
    return [Markup("<figure><figcaption>{}</figcaption>{}</figure>").format(title, svg) for title, svg in made if svg]


def _figure(one: Sampled, key: str) -> list[tuple[str, float]]:
    units = [unit for kind in ("jobs", "queries", "routes") for unit in one.progress.get(kind) or ()]
    named = [(str(unit.get("job") or unit.get("query") or unit.get("source")), unit.get(key)) for unit in units]
    return [(name, float(value)) for name, value in named if isinstance(value, int | float)]
