"""`rekappa publish`, `undo`, `clean`: staging into production, back, and away."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from rekappa.cli.options import (
    agreed,
    app_argument,
    dry_run_option,
    json_option,
    run_argument,
    set_option,
    yes_option,
)
from rekappa.cli.output import Output, output
from rekappa.errors import ConfigError
from rekappa.home import Home
from rekappa.timeline import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rekappa.publish.plan import PublishPlan
    from rekappa.staging.staged import Staged

_sinks = click.option("--sink", "sinks", multiple=True, help="Only this sink; may be repeated. All, if left out.")
_force = click.option("--force", is_flag=True, help="Go on although somebody else changed the window meanwhile.")


def _note(text: str) -> None:
    click.echo(f"{text} …", err=True)


def _opened(run: str, overrides: tuple[str, ...], sinks: tuple[str, ...]) -> tuple[SparkSession, Staged]:
    """Spark, and what of the run publishing is about."""
    from rekappa.runs.session import backfill_session
    from rekappa.staging.staged import backfill_run, load_run, open_staged, require_sinks, window_at_stake

    home = Home.locate()
    found = backfill_run(home, run)
    loaded = load_run(home, found, overrides)
    require_sinks(found, loaded, sinks)
    spark = backfill_session(loaded, home)
    return spark, open_staged(spark, home, found, loaded).narrowed(window_at_stake(found)).only(sinks)


def _accepted(out: Output, staged: Staged, told: bool) -> bool:
    """Whether a person wants the differences by code that nobody said to expect: shows them, and asks if it can."""
    from rekappa.validate.result import Outcome, outcome_of

    validation = staged.run.validation or {}
    names = {one.name for one in staged.sinks}
    if outcome_of(validation, names) is not Outcome.NEEDS_YES:
        return False
    for one in (one for one in validation["sinks"] if one["sink"] in names):
        rows = [
            (sample["kind"], sample["cause"], ", ".join(sample["columns"]), sample["production"], sample["staging"])
            for sample in (one["comparison"] or {}).get("samples", ())
        ]
        for why in one["why"]:
            click.echo(f"{one['sink']}: {why}", err=True)
        if rows and not out.is_json:
            out.table(f"{one['sink']}: samples", ["kind", "cause", "columns", "production", "staging"], rows[:10])
    if told or not sys.stdin.isatty():
        return told
    return click.confirm("Is this the change you want in production?", err=True)


def _show(out: Output, plan: PublishPlan) -> None:
    columns = [
        "sink", "target", "state", "added", "changed", "removed", "unchanged", "files dropped", "files rewritten",
        "partitions",
    ]  # fmt: skip
    rows = []
    for one in plan.sinks:
        made = one.effect
        counts = (made.added, made.changed, made.removed, made.unchanged)
        files = (made.files_dropped, made.files_rewritten, len(made.partitions))
        rows.append((one.sink, one.target, one.state.value, *counts, *files))
    out.table("Effect on production", columns, rows)


@click.command()
@run_argument
@_sinks
@click.option("--unvalidated", is_flag=True, help="Publish what was not validated or did not pass.")
@click.option("--accept-changes", is_flag=True, help="Yes to differences by the change in code; shown, not asked.")
@_force
@yes_option
@set_option
@dry_run_option
@json_option
def publish(
    run: str,
    sinks: tuple[str, ...],
    unvalidated: bool,
    accept_changes: bool,
    force: bool,
    yes: bool,
    overrides: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Replace the window in production with what RUN staged: one atomic commit per table.

    Shows the effect first. Where the change in code made differences that nobody had said to expect, it shows them and
    asks. The live job may go on. Refused when somebody else changed the window since the backfill began. `rekappa undo
    RUN` brings the window back.
    """
    from rekappa.operations.deeds import record_deed
    from rekappa.publish.evaluate import publish as carry_out
    from rekappa.publish.gate import require_judged, require_validated
    from rekappa.publish.make import make_publish_plan

    spark, staged = _opened(run, overrides, sinks)
    out = output(as_json)
    if not unvalidated:
        require_validated(staged, accepted=_accepted(out, staged, accept_changes))
    plan = make_publish_plan(spark, staged, force=force)
    if not unvalidated:
        require_judged(staged, plan)
    state = "already published" if plan.done else "would publish" if dry_run else "published"
    if not as_json:
        _show(out, plan)
    if state == "published":
        agreed(yes, f"Replace {staged.window} in production?")
    if not dry_run:
        record_deed(staged.home, "publish", staged.run.app, staged.run.id, sinks=[one.sink for one in plan.sinks])
        carry_out(spark, staged, plan, tell=_note)
    out.document({**plan.as_json(), "state": state})
    out.message(
        f"{state}: {staged.window}"
        + (f"; `rekappa undo {staged.run.id}` brings it back" if state == "published" else "")
    )


@click.command()
@run_argument
@_sinks
@_force
@yes_option
@set_option
@dry_run_option
@json_option
def undo(
    run: str,
    sinks: tuple[str, ...],
    force: bool,
    yes: bool,
    overrides: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Bring back the window as it was before RUN was published. What was appended elsewhere since then stays."""
    from rekappa.operations.deeds import record_deed
    from rekappa.publish.evaluate import undo as bring_back
    from rekappa.publish.evaluate import undo_states
    from rekappa.publish.plan import PublishState

    spark, staged = _opened(run, overrides, sinks)
    out = output(as_json)
    states = undo_states(spark, staged)
    there = [name for name, state in states.items() if state not in (PublishState.NEVER, PublishState.UNDONE)]
    if dry_run:
        out.document({"run": staged.run.id, "state": "would undo", "sinks": states})
        out.message(f"would undo {staged.window} in: {', '.join(there) or 'nothing'}")
        return
    if there:
        agreed(yes, f"Bring back {staged.window} in production as it was?")
    record_deed(staged.home, "undo", staged.run.app, staged.run.id, sinks=there)
    done = bring_back(spark, staged, force=force, tell=_note)
    state = "undone" if any(one.happened for one in done) else "already undone"
    out.document({"run": staged.run.id, "state": state, "sinks": [asdict(one) for one in done]})
    out.message(f"{state}: {staged.window}")
    for one in done:
        if one.stays:
            out.message(f"{one.sink} is still published: {one.stays}")
        if one.effect.kept:
            out.message(f"{one.sink}: {one.effect.kept} rows were kept: others have changed them since")


@click.command()
@app_argument
@click.option("--older-than", metavar="DURATION", help="Instead of staging_retention, for example 7d or 0s.")
@click.option("--history-older-than", "history", metavar="DURATION", help="Instead of history_retention, like 90d.")
@yes_option
@set_option
@dry_run_option
@json_option
def clean(
    app: str,
    older_than: str | None,
    history: str | None,
    yes: bool,
    overrides: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove staging of APP's ended backfills that is older than its retention, with their checkpoints and logs.

    Their publication can't be undone then. Kept code goes that no other run needs. What live runs keep stays, but for
    micro-batches that are older than history_retention (90 days): that time can't be replayed exactly then. Runs that
    nothing was heard of for so long are forgotten, with what they left.
    """
    from rekappa.config.load import load, require_production
    from rekappa.operations.deeds import record_deed
    from rekappa.publish.clean import clean as remove
    from rekappa.runs.session import backfill_session
    from rekappa.store.runs import RunStore

    try:
        age, past = (parse_duration(told) if told is not None else None for told in (older_than, history))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    loaded = load(app, overrides=overrides)
    require_production(loaded, "clean up")
    home, out = Home.locate(), output(as_json)
    RunStore.existing(home)
    spark = backfill_session(loaded, home)
    found = remove(spark, loaded.config, home, older_than=age, history=past, dry_run=True)
    going = [one for one in found if one.kept is None]
    if going and not dry_run:
        lost = sum(one.undo_lost for one in going)
        tables, runs = sum(one.sink is not None for one in going), len({one.run for one in going if one.run})
        undo = f" {lost} publications can't be undone then." if lost else ""
        agreed(yes, f"Remove {tables} staging tables, and what else {runs} runs left?{undo}")
        record_deed(home, "clean", loaded.config.app, names=[one.name for one in going])
        found = remove(spark, loaded.config, home, older_than=age, history=past)
    gone = "would remove" if dry_run else "removed"
    rows = [
        (one.name, one.run, one.rows, one.bytes, one.written, one.kept or gone, "lost" if one.undo_lost else "-")
        for one in found
    ]
    out.table("Left by ended runs", ["name", "run", "rows", "bytes", "written", "what", "undo"], rows)
