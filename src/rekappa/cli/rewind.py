"""`rekappa rewind`: a live job goes on from an earlier point, and its sinks with it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from rekappa.cli.options import app_argument, dry_run_option, json_option, set_option
from rekappa.cli.output import Output, output
from rekappa.errors import RunError
from rekappa.home import Home

if TYPE_CHECKING:
    from rekappa.recovery.choose import Wanted
    from rekappa.recovery.plan import RewindPlan


@click.command()
@app_argument
@set_option
@click.option("--to", metavar="TIME|BATCH", help="The last batch committed by then, or the batch of that number.")
@click.option("--savepoint", metavar="NAME", help="The batches that a savepoint holds.")
@click.option("--new-savepoint", is_flag=True, help="The last batch, kept as a savepoint first.")
@click.option("--no-state", is_flag=True, help="The beginning of the sources, with empty state.")
@click.option("--send-again", is_flag=True, help="Go on although a Kafka sink keeps what was sent.")
@click.option("--resume", "completing", is_flag=True, help="Complete a rewind, or its undoing, that was cut short.")
@click.option("--undo", "undoing", is_flag=True, help="Take the last rewind back: the old run goes on.")
@click.option("--start", is_flag=True, help="Run the job afterwards, as `rekappa run` does.")
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
    send_again: bool,
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

    \b
      rekappa stop RUN
      rekappa rewind take_rate --to 2026-11-01T13:00Z --dry-run
      rekappa rewind take_rate --to 2026-11-01T13:00Z --start
      rekappa rewind take_rate --undo
    """
    from rekappa.config.bind import load_app
    from rekappa.config.load import load
    from rekappa.operations.deeds import record_deed
    from rekappa.recovery import rewind as operation
    from rekappa.recovery.listing import queries_of
    from rekappa.recovery.points import require_points
    from rekappa.runs.current import current_run
    from rekappa.runs.live import live_session
    from rekappa.store.runs import RunStore

    home = Home.locate()
    wanted = _wanted(to, savepoint, new_savepoint, no_state, completing or undoing)
    loaded = load(app, overrides=overrides)
    bound = load_app(loaded)
    store = RunStore.existing(home)
    out = output(as_json)

    def note(text: str) -> None:
        click.echo(f"{text} …", err=True)

    if wanted is None:
        if dry_run:
            raise RunError(
                "Cannot show what --undo or --resume would do: the plan that was made is what they carry out"
            )
        record_deed(home, "resume rewind" if completing else "undo rewind", loaded.config.app)
        live = operation.LiveApp(live_session(loaded, home), home, loaded, bound)
        ended = (operation.resume if completing else operation.undo_rewind)(live, tell=note)
        out.record({"app": ended.app, "run": ended.id, "state": ended.state}, title="Goes on")
        return
    run = current_run(store, loaded) if dry_run else operation.rewindable(store, loaded)
    if not (yes or dry_run or sys.stdin.isatty()):
        raise RunError("Cannot ask for consent: there is no terminal", hint="Give --yes to go on without asking.")
    require_points(home, store, run, loaded, bound, wanted)
    live = operation.LiveApp(live_session(loaded, home), home, loaded, bound)
    note("trying it on a copy")
    plan = operation.plan_rewind(live, wanted, send_again=send_again)
    _show(out, plan)
    if dry_run:
        return
    if not yes:
        click.confirm("Rewind?", abort=True, err=True)
    if new_savepoint:
        # Only now: a rewind that is refused leaves nothing behind.
        _keep(home, run.app, run.id, queries_of(store, run))
    record_deed(home, "rewind", run.app, run.id, to=to or savepoint or ("newest" if new_savepoint else "no state"))
    ended = operation.rewind(live, plan, tell=note)
    if start:
        from rekappa.runs.live import run_live

        ended = run_live(loaded, bound, home, tell=note)
    out.message(f"{ended.id} goes on: rekappa run {app}" if not start else f"{ended.id} {ended.state}")


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


def _show(out: Output, plan: RewindPlan) -> None:
    if out.is_json:
        out.document(plan.as_json())
        return
    rows = [
        (one.query, one.batch if one.folder else "no state", one.committed, one.run, one.savepoint,
         sum(1 for _ in one.files), "; ".join(one.notes))
        for one in plan.queries
    ]  # fmt: skip
    out.table("Goes on after", ["query", "batch", "committed", "of run", "savepoint", "files", "notes"], rows)
    sinks = [
        (one.reset.sink, one.reset.target, one.reset.removed, one.reset.restored, one.reset.told)
        for one in plan.queries
    ]
    out.table("Sinks", ["sink", "target", "rows out", "rows back", "how"], sinks)
