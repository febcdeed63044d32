"""`rekappa rewind`: a live job goes on from an earlier point, and its sinks with it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from rekappa.cli.options import dry_run_option, json_option, set_option
from rekappa.cli.output import Output, output
from rekappa.errors import RunError
from rekappa.home import Home

if TYPE_CHECKING:
    from rekappa.recovery.choose import Wanted
    from rekappa.recovery.live_app import LiveApp
    from rekappa.recovery.plan import QueryRewind, RewindPlan
    from rekappa.store.record import Run
    from rekappa.store.runs import RunStore


@click.command()
@click.argument("app", metavar="APP|OPERATION")
@set_option
@click.option("--to", metavar="TIME|BATCH", help="The last batch committed by then, or the batch of that number.")
@click.option("--savepoint", metavar="NAME", help="The batches that a savepoint holds.")
@click.option("--new-savepoint", is_flag=True, help="The last batch, kept as a savepoint first.")
@click.option("--no-state", is_flag=True, help="The beginning of the sources, with empty state.")
@click.option("--cascade", is_flag=True, help="Rewind the apps that read what it writes with it; stops what is going.")
@click.option("--resume", "completing", is_flag=True, help="Complete a rewind, or its undoing, that was cut short.")
@click.option("--undo", "undoing", is_flag=True, help="Take the last rewind back: the old run goes on.")
@click.option("--start", is_flag=True, help="Run it afterwards, as `rekappa run` does; with others, each detached.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@dry_run_option
@json_option
def rewind(
    app: str,
    overrides: tuple[str, ...],
    to: str | None,
    savepoint: str | None,
    new_savepoint: bool,
    no_state: bool,
    cascade: bool,
    completing: bool,
    undoing: bool,
    start: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Let APP's live job go on from an earlier point, with the code as it is now.

    What the abandoned batches wrote is taken out of the sinks, told by the stamps of their commits. The job goes on
    as a new run with a copy of the point's state; the old run is kept and can't be continued by accident. Before
    anything is touched, the code is tried on a copy of the state, one batch, into nothing.

    What was sent to a topic stays there and no longer counts: `rekappa lineage TOPIC`. Known apps that read the topic
    are rewound with it by --cascade, each to its last point before the first such message; as one operation, which
    --resume completes and --undo takes back, whichever of the apps is named, or the operation: the id of a run that it
    made.

    \b
      rekappa stop RUN
      rekappa rewind take_rate --to 2026-11-01T13:00Z --dry-run
      rekappa rewind take_rate --to 2026-11-01T13:00Z --start
      rekappa rewind take_rate --undo
      rekappa rewind --resume live_20261101_160000_ab12
      rekappa rewind enrich --to 2026-11-01T13:00Z --cascade --start
    """
    from rekappa.config.bind import load_app
    from rekappa.config.load import load
    from rekappa.operations.deeds import record_deed
    from rekappa.recovery import rewind as operation
    from rekappa.recovery.listing import queries_of
    from rekappa.recovery.live_app import loaded_of
    from rekappa.recovery.points import require_points
    from rekappa.runs.current import current_run
    from rekappa.runs.live import live_session
    from rekappa.store.runs import RunStore

    home = Home.locate()
    wanted = _wanted(to, savepoint, new_savepoint, no_state, completing or undoing)
    out = output(as_json)
    store = RunStore.existing(home)
    made = _made_by_a_rewind(store, app) if wanted is None else None
    loaded = load(app, overrides=overrides) if made is None else loaded_of(made, *overrides)
    bound = load_app(loaded)

    def note(text: str) -> None:
        click.echo(f"{text} …", err=True)

    def opened() -> LiveApp:
        return operation.LiveApp(live_session(loaded, home), home, loaded, bound)

    def tried(live: LiveApp, wanted: Wanted) -> RewindPlan:
        note("trying it on a copy")
        return operation.plan_rewind(live, wanted, cascade=cascade)

    if wanted is None:
        if dry_run:
            raise RunError(
                "Cannot show what --undo or --resume would do: the plan that was made is what they carry out"
            )
        # What the store alone tells is refused before Spark is started.
        plan = (operation.resumable if completing else operation.undoable)(store, loaded)
        if made is not None and made.id not in {part.operation for part in plan.apps}:
            raise RunError(f"Cannot go on with {made.id}: the last rewind of {made.app!r} is {plan.operation}")
        record_deed(home, "resume rewind" if completing else "undo rewind", loaded.config.app)
        live = opened()
        ended = (operation.resume if completing else operation.undo_rewind)(live, tell=note)
        out.record({"app": ended.app, "run": ended.id, "state": ended.state}, title="Goes on")
        return
    require_points(home, store, current_run(store, loaded), loaded, bound, wanted)
    if not (yes or dry_run):
        _require_terminal()
    if cascade and not dry_run:
        _stop_chain(opened(), yes, lambda going: tried(going, wanted))
    run = current_run(store, loaded) if dry_run else operation.rewindable(store, loaded)
    live = opened()
    plan = tried(live, wanted)
    _show(out, plan)
    if dry_run:
        return
    _agree("Rewind?", yes)
    if new_savepoint:
        # Only now: a rewind that is refused leaves nothing behind.
        _keep(home, run.app, run.id, queries_of(store, run))
    record_deed(home, "rewind", run.app, run.id, to=to or savepoint or ("newest" if new_savepoint else "no state"))
    ended = operation.rewind(live, plan, tell=note)
    if start and plan.downstream:
        out.message("; ".join(_start_detached(home, store.run(one.operation)) for one in plan.apps))
        return
    if start:
        from rekappa.runs.live import run_live

        ended = run_live(loaded, bound, home, tell=note)
    goes_on = ", ".join(f"rekappa run {one.app}" for one in plan.apps)
    out.message(f"{ended.id} goes on: {goes_on}" if not start else f"{ended.id} {ended.state}")


def _made_by_a_rewind(store: RunStore, word: str) -> Run | None:
    """The run of this id, if the word is no app but an operation; refused where no rewind has made it."""
    from rekappa.store.record import Kind

    run = next((one for one in store.runs(kind=Kind.LIVE) if one.id == word), None)
    if run is not None and "rewind" not in run.spec:
        raise RunError(f"Cannot find a rewind {word!r}: that run was not made by one")
    return run


def _agree(question: str, yes: bool) -> None:
    if not yes:
        _require_terminal()
        click.confirm(question, abort=True, err=True)


def _require_terminal() -> None:
    if not sys.stdin.isatty():
        raise RunError("Cannot ask for consent: there is no terminal", hint="Give --yes to go on without asking.")


def _stop_chain(live: LiveApp, yes: bool, tried: Callable[[LiveApp], object]) -> None:
    """Stop what is going of the apps that are to be rewound together, once it was `tried`: what would be refused then
    is refused before anything stands still."""
    from rekappa.recovery.chain import chain_of
    from rekappa.runs.current import current_run
    from rekappa.runs.stopping import stop_run

    runs = [current_run(live.store, one.loaded) for one in chain_of(live).apps.values()]
    going = [run for run in runs if run.state.going]
    if going:
        tried(live)
        _agree(f"Stop {', '.join(run.id for run in going)}?", yes)
    for run in going:
        click.echo(f"stopping {run.id} …", err=True)
        stop_run(live.store, run.id)


def _start_detached(home: Home, run: Run) -> str:
    """The run in a process of its own, as `rekappa start` does, with the choices that it was begun with."""
    from pathlib import Path

    from rekappa.operations.changes import begin, live_change
    from rekappa.operations.deeds import acting

    core = acting(home, Path(run.folder))
    change = live_change(core, run.app, overrides=tuple(run.spec.get("overrides", ())))
    return f"{run.app} runs as {begin(core, change).id}"


def _wanted(to: str | None, savepoint: str | None, newest: bool, no_state: bool, other: bool) -> Wanted | None:
    """Where to go back to; None where that is not the question."""
    from rekappa.recovery.choose import NoState, ToNewest, ToSavepoint, parse_to

    given = [to is not None, savepoint is not None, newest, no_state, other]
    if sum(given) != 1:
        raise click.UsageError("give one of --to, --savepoint, --new-savepoint, --no-state, --resume, --undo")
    if to is not None:
        return parse_to(to)
    if savepoint is not None:
        return ToSavepoint(savepoint)
    return ToNewest() if newest else NoState() if no_state else None


def _keep(home: Home, app: str, run: str, names: tuple[str, ...]) -> None:
    from datetime import UTC, datetime

    from rekappa.checkpoints.savepoints import name_for, take

    made = take(home, app, run, names, name_for(datetime.now(UTC), automatic=False))
    click.echo(f"savepoint {made.name}", err=True)


def picture(plan: RewindPlan) -> list[str]:
    """Who reads from whom, and where each goes on."""
    from rekappa.recovery.graph import ChainedQuery, drawn

    parts = {ChainedQuery(app.app, one.query): one for app in plan.apps for one in app.queries}
    return list(drawn(plan.flows, list(parts), lambda node: _point(parts[node])))


def _point(one: QueryRewind) -> str:
    where = f"goes on after batch {one.batch}" if one.batch >= 0 else "begins without state"
    return f"{where}, before {', '.join(one.before)}" if one.before else where


def _show(out: Output, plan: RewindPlan) -> None:
    if out.is_json:
        out.document(plan.as_json())
        return
    if plan.flows:
        out.message("\n".join(picture(plan)))
    rows = [
        (app.app, one.query, one.batch if one.folder else "no state", one.committed, one.run, one.savepoint,
         sum(1 for _ in one.files), "; ".join(one.notes))
        for app in plan.apps
        for one in app.queries
    ]  # fmt: skip
    out.table("Goes on after", ["app", "query", "batch", "committed", "of run", "savepoint", "files", "notes"], rows)
    sinks = [
        (app.app, one.reset.sink, one.reset.target, one.reset.removed, one.reset.restored, one.reset.told)
        for app in plan.apps
        for one in app.queries
    ]
    out.table("Sinks", ["app", "sink", "target", "rows out", "rows back", "how"], sinks)
