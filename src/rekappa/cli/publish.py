"""`rekappa publish`, `undo`, `clean`: staging into production, back, and away."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from rekappa.cli.options import app_argument, dry_run_option, json_option, run_argument, set_option
from rekappa.cli.output import Output, output
from rekappa.errors import ConfigError, PublishError
from rekappa.home import Home
from rekappa.timeline import parse_duration

if TYPE_CHECKING:
    from rekappa.publish.publish import SinkEffect

_yes = click.option("--yes", is_flag=True, help="Do not ask.")
_force = click.option("--force", is_flag=True, help="Go on although somebody else changed the window meanwhile.")


def _note(text: str) -> None:
    click.echo(f"{text} …", err=True)


def _opened(run: str, overrides: tuple[str, ...]) -> tuple[Any, Any]:
    from rekappa.runs.backfill import backfill_session
    from rekappa.staging.staged import backfill_run, load_run, open_staged

    home = Home.locate()
    found = backfill_run(home, run)
    loaded = load_run(found, overrides)
    spark = backfill_session(loaded, home)
    return spark, open_staged(spark, home, found, loaded)


def _agreed(yes: bool, question: str) -> None:
    """Go on only if told so: by --yes, or by a person at the terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise PublishError("Cannot ask for consent: there is no terminal", hint="Give --yes to go on without asking.")
    click.confirm(question, abort=True, err=True)


def _show_effects(out: Output, effects: list[SinkEffect]) -> None:
    columns = [
        "sink",
        "target",
        "added",
        "changed",
        "removed",
        "unchanged",
        "files dropped",
        "files rewritten",
        "partitions",
    ]
    rows = [
        (
            one.sink, one.target, one.added, one.changed, one.removed, one.unchanged, one.files_dropped,
            one.files_rewritten, len(one.partitions),
        )
        for one in effects
    ]  # fmt: skip
    out.table("Effect on production", columns, rows)


@click.command()
@run_argument
@click.option("--unvalidated", is_flag=True, help="Publish what was not validated or did not pass.")
@_force
@_yes
@set_option
@dry_run_option
@json_option
def publish(
    run: str, unvalidated: bool, force: bool, yes: bool, overrides: tuple[str, ...], dry_run: bool, as_json: bool
) -> None:
    """Replace the window in production with what RUN staged: one atomic commit per table.

    Shows the effect first. The live job may go on. Refused when somebody else changed the window since the
    backfill began. `rekappa undo RUN` brings the window back.
    """
    from rekappa.publish.publish import plan_publish, require_validated
    from rekappa.publish.publish import publish as replace_windows

    spark, staged = _opened(run, overrides)
    if not unvalidated:
        require_validated(staged)
    out = output(as_json)
    effects = plan_publish(spark, staged, force=force)
    state = "already published" if all(one.done for one in effects) else "would publish" if dry_run else "published"
    if not as_json:
        _show_effects(out, effects)
    if state == "published":
        _agreed(yes, f"Replace {staged.window} in production?")
    if not dry_run:
        replace_windows(spark, staged, unvalidated=True, force=force, effects=effects, tell=_note)
    out.document({"run": staged.run.id, "state": state, "sinks": [asdict(one) for one in effects]})
    out.message(
        f"{state}: {staged.window}"
        + (f"; `rekappa undo {staged.run.id}` brings it back" if state == "published" else "")
    )


@click.command()
@run_argument
@_force
@_yes
@set_option
@dry_run_option
@json_option
def undo(run: str, force: bool, yes: bool, overrides: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Bring back the window as it was before RUN was published. What was appended elsewhere since then stays."""
    from rekappa.publish.publish import undo as bring_back
    from rekappa.publish.publish import undo_state

    spark, staged = _opened(run, overrides)
    out = output(as_json)
    states = undo_state(spark, staged)
    if dry_run:
        out.document({"run": staged.run.id, "state": "would undo", "sinks": states})
        out.message(
            f"would undo {staged.window} in: {', '.join(n for n, s in states.items() if s == 'published') or 'nothing'}"
        )
        return
    if "published" in states.values():
        _agreed(yes, f"Bring back {staged.window} in production as it was?")
    done = bring_back(spark, staged, force=force, tell=_note)
    state = "undone" if any(happened for _, happened in done) else "already undone"
    out.document({"run": staged.run.id, "state": state, "sinks": dict(done)})
    out.message(f"{state}: {staged.window}")


@click.command()
@app_argument
@click.option("--older-than", metavar="DURATION", help="Instead of staging_retention, for example 7d or 0s.")
@_yes
@set_option
@dry_run_option
@json_option
def clean(
    app: str, older_than: str | None, yes: bool, overrides: tuple[str, ...], dry_run: bool, as_json: bool
) -> None:
    """Remove staging of APP's ended backfills that is older than its retention, with their checkpoints and logs.

    Their publication can't be undone then.
    """
    from rekappa.config.load import load
    from rekappa.publish.clean import clean as remove
    from rekappa.runs.backfill import backfill_session

    try:
        age = parse_duration(older_than) if older_than is not None else None
    except ValueError as error:
        raise ConfigError(str(error)) from None
    loaded = load(app, overrides=overrides)
    home, out = Home.locate(), output(as_json)
    spark = backfill_session(loaded, home)
    found = remove(spark, loaded.config, home, older_than=age, dry_run=True)
    going = [one for one in found if one.kept is None]
    if going and not dry_run:
        lost = sum(one.undo_lost for one in going)
        tables, runs = sum(one.sink is not None for one in going), len({one.run for one in going})
        undo = f" {lost} publications can't be undone then." if lost else ""
        _agreed(yes, f"Remove {tables} staging tables, and what else {runs} runs left?{undo}")
        found = remove(spark, loaded.config, home, older_than=age)
    gone = "would remove" if dry_run else "removed"
    rows = [
        (one.name, one.run, one.rows, one.bytes, one.written, one.kept or gone, "lost" if one.undo_lost else "-")
        for one in found
    ]
    out.table("Left by ended runs", ["name", "run", "rows", "bytes", "written", "what", "undo"], rows)
