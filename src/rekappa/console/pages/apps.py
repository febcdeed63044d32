"""Apps, and one app: its flow, what runs, its sources and settings, and starting it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from rekappa.config.explain import Setting, settings
from rekappa.console.confirm import SURE, confirmed
from rekappa.console.context import Console, asked, console_of, core_of, page
from rekappa.console.flow import flow
from rekappa.console.graph import chain, downstream, handovers, neighbours
from rekappa.console.guard import FORM_KEY, form_of
from rekappa.console.observed import FOR_EVER, Observation
from rekappa.operations.changes import AskedChange, live_change, restart_change, router_change, sets
from rekappa.operations.core import Core, FoundApp
from rekappa.operations.overrides import drop_override, keep_override, keepable
from rekappa.store.record import Kind, Run
from rekappa.tasks.standing import tasks

router = APIRouter()
LAST_RUNS = 5
PROFILES = ("live", "backfill", "archive")
RESOURCES = (
    "master",
    "trigger",
    "max_rows_per_second",
    "spark.driver.memory",
    "spark.executor.memory",
    "spark.executor.cores",
    "spark.sql.shuffle.partitions",
)
"""What is shown of every profile, set or not."""


@router.get("/")
def all_apps(request: Request) -> Response:
    core, console = core_of(request), console_of(request)
    found, store = core.apps(), core.store()
    links = handovers(found)
    cards = []
    for app in found:
        live = next(iter(store.page(1, app=app.name, kind=Kind.LIVE)), None)
        routers = next(iter(store.page(1, app=app.name, kind=Kind.ARCHIVE)), None)
        cards.append(
            {
                "app": app,
                "flow": flow(app, _queries(console, app), neighbours(app.name, links)),
                "live": live,
                "router": routers,
                "lag": lag_of(live),
                "archive": archive_status(console, app),
                "runs": store.page(LAST_RUNS, app=app.name),
            }
        )
    return page(request, "apps.html", cards=cards, chain=chain(links), folder=core.folder)


@router.get("/apps/{name}")
def one_app(request: Request, name: str) -> Response:
    core, console = core_of(request), console_of(request)
    app = core.app(name)
    store = core.store()
    live = next(iter(store.page(1, app=name, kind=Kind.LIVE)), None)
    starts = store.starts(live.id) if live else []
    rows = settings(app.loaded) if app.loaded else ()
    links, told = handovers(core.apps()), asked(request)
    return page(
        request,
        "app.html",
        app=app,
        flow=flow(app, _queries(console, app), neighbours(name, links)),
        live=live,
        lag=lag_of(live),
        code=starts[-1] if starts else None,
        settings=rows,
        profiles=PROFILES,
        resources=by_profile(rows),
        reached=downstream(name, links),
        chosen=told.get("key", ""),
        value=next((one.value for one in rows if one.key == told.get("key")), ""),
        kept=core.desk().overrides(name),
        tasks=tasks(core.home, app=name, limit=8),
        runs=store.page(LAST_RUNS, app=name),
        archive=archive_status(console, app),
    )


@router.post("/apps/{name}/start")
async def start(request: Request, name: str) -> Response:
    form = await form_of(request)
    return confirmed(request, form, live_change(core_of(request), name, fresh=form.on("fresh")))


@router.post("/apps/{name}/restart")
async def restart(request: Request, name: str) -> Response:
    return confirmed(request, await form_of(request), restart_change(core_of(request), name))


@router.post("/apps/{name}/router")
async def start_router(request: Request, name: str) -> Response:
    return confirmed(request, await form_of(request), router_change(core_of(request), name))


@router.post("/apps/{name}/override")
async def override(request: Request, name: str) -> Response:
    """Keep a value for the next runs, or take it back; asks first."""
    form, core = await form_of(request), core_of(request)
    key, value, back = form.get("key"), form.get("value"), form.on("forget")
    if not form.on(SURE):
        if not back:
            keepable(core, name, f"{key}={value}")
        now = next((str(one.value) for one in settings(core.loaded(name)) if one.key == key), "not set")
        told = "rekappa.yaml's value counts again" if back else f"it will be {value!r}"
        words = ("config", name, "--forget", key) if back else ("config", name, "--keep", f"{key}={value}")
        tells = (f"{key} is {now!r}; for the next runs {told}.", "What runs now is not changed.")
        change = AskedChange("override", f"Override {key}", words, tells, name)
        return page(request, "confirm.html", change=change, fields=form.rest(FORM_KEY, SURE), back=f"/apps/{name}")
    if back:
        drop_override(core, name, key)
    else:
        keep_override(core, name, f"{key}={value}")
    return RedirectResponse(f"/apps/{name}", 303)


def by_profile(rows: Sequence[Setting]) -> dict[str, dict[str, Setting]]:
    """The resources of each kind of run, setting by setting: key -> profile -> value."""
    found: dict[str, dict[str, Setting]] = {key: {} for key in RESOURCES}
    for one in rows:
        top, _, rest = one.key.partition(".")
        profile, _, key = rest.partition(".")
        if top == "profiles" and key != "spark":
            found.setdefault(key, {})[profile] = one
    return found


def lag_of(live: Run | None) -> int | None:
    """Events that wait in Kafka, over all queries of the live run; None if none is going."""
    if live is None or not live.state.going:
        return None
    return sum(int(one.get("lag") or 0) for one in live.progress.get("queries") or ())


def archive_status(console: Console, app: FoundApp) -> Observation:
    """What `rekappa archive status` said last."""
    if app.loaded is None:
        return Observation()
    return console.observed.ask("archive", "status", str(app.folder), *sets(app.loaded.overrides))


def _queries(console: Console, app: FoundApp) -> list[dict[str, Any]]:
    """The app's queries, as its own code tells: asked in a process of its own, once for each state of the folder."""
    if app.loaded is None:
        return []
    files = [*sorted(app.folder.glob("*.py")), app.loaded.file]
    version = ",".join(f"{one.name}:{one.stat().st_mtime_ns}" for one in files)
    answer = console.observed.ask("config", str(app.folder), version=version, fresh=FOR_EVER)
    return list(answer.value["queries"]) if isinstance(answer.value, dict) else []


def known_regions(core: Core, name: str) -> list[str]:
    """The regions that the app's clusters are in."""
    config = core.loaded(name).config
    return sorted({one.region for one in config.clusters.values() if one.region})
