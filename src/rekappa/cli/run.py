"""`rekappa run`, `stop`: live runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from rekappa.cli.options import app_argument, dry_run_option, json_option, run_argument, set_option
from rekappa.cli.output import Output, output
from rekappa.cli.runs import show_run
from rekappa.home import Home

if TYPE_CHECKING:
    from rekappa.app import App
    from rekappa.config.load import Loaded


@click.command()
@app_argument
@set_option
@click.option("--available-now", is_flag=True, help="End when caught up with Kafka.")
@click.option("--fresh", is_flag=True, help="Rewind to no state first: what the app's live run wrote is taken out.")
@click.option("--append-again", is_flag=True, help="With --fresh: take nothing out, and append it all again.")
@dry_run_option
@json_option
def run(
    app: str,
    overrides: tuple[str, ...],
    available_now: bool,
    fresh: bool,
    append_again: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run APP from its selected sources into its sinks, until stopped.

    Ctrl-C or SIGTERM stops it after the current batch. The same command continues where it was: no event is
    lost, none is doubled, also after a crash. While it runs, a second one of the same app is refused. With --fresh
    it begins anew, with empty state at the beginning of its sources, as after `rekappa rewind --no-state`.

    \b
      rekappa run examples/take_rate
      rekappa run examples/take_rate --available-now
      rekappa run examples/take_rate --set profiles.live.trigger='30 seconds'
      rekappa run APP --set sinks.plays.selected=test    to another candidate; never taken for production
    """
    from rekappa.config.bind import live_queries, load_app
    from rekappa.config.load import load
    from rekappa.config.targets import target_of

    loaded = load(app, overrides=overrides)
    bound = load_app(loaded)
    out = output(as_json)
    if dry_run:
        _show_what_begins(loaded, bound, fresh, append_again)
        rows = [
            (query.job, f"{name} <- {source.selected}", f"{query.sink} ({target_of(loaded.config.sinks[query.sink])})")
            for query in live_queries(loaded, bound)
            for name, source in loaded.config.sources.items()
            if name in bound.jobs[query.job].sources
        ]
        out.table("Would run", ["job", "source", "sink"], rows)
        return
    if loaded.elsewhere and (alone := sorted(set(loaded.config.sinks) - set(loaded.elsewhere))):
        click.echo(f"not run: {', '.join(alone)}, which this run leaves to production", err=True)
    from rekappa.runs.live import run_live

    if fresh and not append_again:
        _begin_anew(loaded, bound)
    with live_progress(out, f"{loaded.config.app} live") as shown:
        ended = run_live(
            loaded,
            bound,
            Home.locate(),
            available_now=available_now,
            fresh=fresh and append_again,
            append_again=append_again,
            **shown,
        )
    show_run(out, Home.locate(), ended.id)


@contextmanager
def live_progress(out: Output, title: str, *, deed: str = "run") -> Iterator[dict[str, Any]]:
    """How a live run is shown while it runs: what to give to `run_live` as on_start, on_progress and tell."""
    from rekappa.operations.deeds import name_run, record_deed
    from rekappa.runs.queries import QueryProgress
    from rekappa.store.record import Run
    from rekappa.tokens import reports as rates

    with out.progress(title) as line:

        def show(reports: list[QueryProgress]) -> None:
            words = [*(_words(one) for one in reports), *(f"cap {rate}" for rate in rates())]
            line.update(sum(report.rows for report in reports), text="   ".join(words))

        def started(made: Run) -> None:
            name_run(Home.locate(), made.id)
            record_deed(Home.locate(), deed, made.app, made.id)
            click.echo(f"run {made.id}: Ctrl-C stops it after the current batch", err=True)

        yield {"on_start": started, "on_progress": show, "tell": lambda text: click.echo(text, err=True)}


def _show_what_begins(loaded: Loaded, app: App, fresh: bool, append_again: bool) -> None:
    """Which run it would be, or the refusal that it would meet."""
    from rekappa.config.bind import live_queries
    from rekappa.runs.live import run_to_continue
    from rekappa.store.runs import RunStore

    home = Home.locate()
    if not home.root.exists():
        click.echo("begins a new run", err=True)
        return
    if fresh and not append_again and _begin_anew(loaded, app, dry_run=True):
        click.echo("begins anew, with no state", err=True)
        return
    bound = live_queries(loaded, app)
    last = run_to_continue(RunStore.open(home), loaded, bound, fresh=fresh, append_again=append_again)
    click.echo(f"goes on with {last.id}" if last else "begins a new run", err=True)


def _begin_anew(loaded: Loaded, app: App, *, dry_run: bool = False) -> bool:
    """Take out what the app's live run has written, if there is one; answers whether there is."""
    from rekappa.recovery.choose import NoState
    from rekappa.recovery.live_app import LiveApp
    from rekappa.recovery.rewind import plan_rewind, rewind, rewindable
    from rekappa.runs.current import same_places
    from rekappa.runs.live import live_session
    from rekappa.store.runs import RunStore

    home = Home.locate()
    if not same_places(RunStore.open(home), loaded):
        return False
    rewindable(RunStore.open(home), loaded)
    live = LiveApp(live_session(loaded, home), home, loaded, app)
    plan = plan_rewind(live, NoState())
    for one in plan.queries:
        click.echo(f"sink {one.reset.sink}: {one.reset.removed} rows out; {one.reset.told}", err=True)
    if not dry_run:
        rewind(live, plan)
    return True


def _words(report: object) -> str:
    from rekappa.runs.queries import QueryProgress

    assert isinstance(report, QueryProgress)
    mark = f" watermark {report.watermark:%m-%d %H:%M:%S}" if report.watermark else ""
    late = f" late {report.late_rows:,}" if report.late_rows else ""
    return f"{report.query}: {report.rows:,} rows {report.rows_per_second:,.0f}/s lag {report.lag:,}{mark}{late}"


@click.command()
@run_argument
@dry_run_option
@json_option
def stop(run: str, dry_run: bool, as_json: bool) -> None:
    """Stop RUN after its current batch, and wait until it has."""
    from rekappa.operations.deeds import record_deed
    from rekappa.runs.stopping import process_of, stop_run
    from rekappa.store.runs import RunStore

    out = output(as_json)
    store = RunStore.existing(Home.locate())
    found = store.run(run)
    if dry_run:
        out.record({"run": found.id, "state": found.state, "would_stop_process": process_of(store, found.id).pid})
        return
    record_deed(Home.locate(), "stop", found.app, found.id)
    show_run(out, Home.locate(), stop_run(store, found.id).id)
