"""`rekappa plan`, `backfill`, `pause`, `resume`, `cancel`: re-running an app over a past window."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rekappa.cli.margins import told_margins
from rekappa.cli.options import app_argument, dry_run_option, home_of_tables, json_option, run_argument, set_option
from rekappa.cli.output import Output, output
from rekappa.home import Home
from rekappa.timeline import Window, format_duration, format_instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rekappa.app import App
    from rekappa.config.load import Loaded
    from rekappa.plan.plan import Plan
    from rekappa.planning.request import BackfillRequest
    from rekappa.runs.work import Progress
    from rekappa.store.record import Run

Command = TypeVar("Command", bound=Callable[..., Any])
MODES = ("auto", "bulk", "ordered", "strict", "exact")


def _margin(name: str, text: str) -> Callable[[Command], Command]:
    """An option that holds for all jobs or, written JOB=VALUE, for one; may be repeated."""
    return click.option(name, multiple=True, metavar="[JOB=]VALUE", help=text)


def _window_options(command: Command) -> Command:
    """What `plan` and `backfill` are told, passed by these names."""
    options = [
        click.option(
            "--start",
            required=True,
            help="Start of the window; it belongs to it. UTC, or with offset or zone: '2026-11-01 08:00 Asia/Tokyo'.",
        ),
        click.option("--end", required=True, help="End of the window; it does not belong to it."),
        click.option("--region", "regions", multiple=True, help="Only this region; may be repeated. All, if left out."),
        click.option("--job", "jobs", multiple=True, help="Only this job; may be repeated. All, if left out."),
        click.option("--sink", "sinks", multiple=True, help="Only this sink; may be repeated. All, if left out."),
        click.option("--mode", type=click.Choice(MODES), default="auto", show_default=True, help="How to replay."),
        _margin("--warm-up", "Read this much before the window: 30m, '2 hours'; sessions=2h for one job only."),
        _margin("--drain", "Read this much after the window."),
        _margin(
            "--clock-skew",
            "Event times are at most this far ahead of ingestion; if left out, as far as the archive shows.",
        ),
        _margin("--slice-rows", "At most this many rows in a slice."),
        _margin(
            "--slice-span",
            "A slice for every so much time, with what its files reach beyond, at most as much again; if left out, "
            "max_misalignment or as much as the job allows.",
        ),
        click.option(
            "--live-run", default=None, help="The run whose batches exact mode replays; the newest, if left out."
        ),
        click.option("--allow-incomplete", is_flag=True, help="Go on though the archive lacks part of the window."),
        click.option(
            "--profile-set",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            help="A setting of this run only, for example --profile-set spark.sql.shuffle.partitions=8.",
        ),
        set_option,
        json_option,
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _request(told: dict[str, Any]) -> BackfillRequest:
    from rekappa.plan.plan import Mode
    from rekappa.planning.request import BackfillRequest

    every, single = told_margins(told)
    return BackfillRequest(
        window=Window.parse(told["start"], told["end"]),
        regions=tuple(told["regions"]),
        jobs=tuple(told["jobs"]),
        sinks=tuple(told["sinks"]),
        mode=None if told["mode"] == "auto" else Mode(told["mode"]),
        allow_incomplete=told["allow_incomplete"],
        live_run=told["live_run"],
        by_job=single,
        **every,
    )


def _loaded(app: str, told: dict[str, Any]) -> Loaded:
    from rekappa.config.load import load

    return load(app, overrides=[*told["overrides"], *(f"profiles.backfill.{one}" for one in told["settings"])])


def _asked(name: str, told: dict[str, Any]) -> tuple[BackfillRequest, Loaded, App, Home]:
    """What was asked for, looked at as far as that needs no Spark, which starts meanwhile."""
    request, loaded = _request(told), _loaded(name, told)
    home = home_of_tables(loaded.config)
    from rekappa.runs.session import backfill_begun

    with backfill_begun(loaded, home):
        from rekappa.config.bind import load_app

        bound = load_app(loaded)
        _check(bound, loaded, home, request)
    return request, loaded, bound, home


def _check(app: App, loaded: Loaded, home: Home, request: BackfillRequest) -> None:
    """Refuse what can be known to be wrong before Spark has started."""
    from rekappa.planning.chosen import chosen_jobs
    from rekappa.store.runs import RunStore

    chosen_jobs(app, loaded, request)
    if request.live_run is not None:
        RunStore.existing(home).run(request.live_run)


def _show_plan(out: Output, plan: Plan) -> None:
    from rekappa.plan.report import plan_report, plan_summary

    if out.is_json:
        out.document(plan_summary(plan))
        return
    width = max(60, min(shutil.get_terminal_size().columns, 120))
    for line in plan_report(plan, width=width).lines():
        click.echo(line)


@click.command()
@app_argument
@_window_options
def plan(app: str, as_json: bool, **told: Any) -> None:
    """Show what a backfill of APP would do: what it reads, how, why, and how long it takes. Changes nothing.

    \b
      rekappa plan take_rate --start 2026-11-01T00:00Z --end 2026-11-02T00:00Z
      rekappa plan take_rate --start 2026-11-01T13:00Z --end 2026-11-01T16:00Z --region us --json
    """
    request, loaded, bound, home = _asked(app, told)
    from rekappa.runs.session import backfill_session

    spark = backfill_session(loaded, home)
    from rekappa.planning.make import make_plan

    _show_plan(output(as_json), make_plan(spark, loaded, bound, home, request))


@click.command()
@app_argument
@_window_options
@dry_run_option
def backfill(app: str, as_json: bool, dry_run: bool, **told: Any) -> None:
    """Re-run APP over a past window, from the archive into staging. Production is not touched.

    The window is output: rows whose event time is in [start, end). Ctrl-C stops it after the current chunk or
    slice; `rekappa resume RUN` goes on, also after a crash. Afterwards: `rekappa validate RUN`.

    \b
      rekappa backfill take_rate --start 2026-11-01T13:00Z --end 2026-11-01T16:00Z
      rekappa backfill sessions --start 2026-11-01 --end 2026-11-02 --warm-up 2h --drain 2h
      rekappa backfill take_rate --start 2026-11-01 --end 2026-11-02 --profile-set master=local[8]
    """
    request, loaded, bound, home = _asked(app, told)
    out = output(as_json)
    from rekappa.runs.session import backfill_session

    spark = backfill_session(loaded, home)
    from rekappa.planning.make import make_plan
    from rekappa.runs.backfill import run_backfill

    made = make_plan(spark, loaded, bound, home, request)
    if dry_run or not as_json:
        _show_plan(out, made)
    if dry_run:
        return
    with out.progress(f"{loaded.config.app} backfill") as line:
        ended = run_backfill(
            spark, loaded, bound, home, request, plan=made, on_start=_started, on_progress=lambda now: _move(line, now)
        )
    _show_run(out, ended)
    _tidy(spark, loaded, home)


def _tidy(spark: SparkSession, loaded: Loaded, home: Home) -> None:
    """What earlier runs left may go now; that it could not is no fault of this one."""
    from rekappa.operations.deeds import record_deed
    from rekappa.publish.tidy import tidy

    try:
        gone = tidy(spark, loaded, home)
    except Exception as error:
        click.echo(f"not cleaned up after earlier runs: {str(error).splitlines()[0]}", err=True)
        return
    if gone:
        record_deed(home, "clean", loaded.config.app, names=[one.name for one in gone])
        runs = len({one.run for one in gone if one.run})
        click.echo(f"removed what {runs} runs left longer ago than it is kept: see staging_retention", err=True)


def _started(run: Run) -> None:
    from rekappa.operations.deeds import name_run, record_deed

    name_run(Home.locate(), run.id)
    record_deed(Home.locate(), "backfill", run.app, run.id)
    click.echo(f"run {run.id}: Ctrl-C stops it; `rekappa pause|cancel {run.id}` from elsewhere", err=True)


def _move(line: Any, now: Progress) -> None:
    from rekappa.tokens import reports

    words = [f"{now.job}: {now.unit} {now.done} of {now.total}", f"{now.rows:,} of {now.planned_rows:,} rows"]
    if now.reached:
        words.append(f"reached {format_instant(now.reached)}")
    if now.late_rows:
        words.append(f"late rows dropped {now.late_rows:,}")
    if now.left is not None and not now.paused:
        words.append(f"{format_duration(timedelta(seconds=round(now.left.total_seconds())))} left")
    if now.paused:
        words.append("paused")
    words += [f"cap {rate}" for rate in reports()]
    line.update(now.done, total=max(now.total, 1), text="  ".join(words))


def _show_run(out: Output, run: Run) -> None:
    if out.is_json:
        out.document(run)
        return
    out.record({"run": run.id, "state": run.state, "app": run.app, "error": run.error}, title="Run")
    columns = ["job", "mode", "done", "total", "rows", "late_rows", "reached", "rows_per_second"]
    rows = [[job.get(column) for column in columns] for job in run.progress.get("jobs", [])]
    out.table("", [column.replace("_", " ") for column in columns], rows)
    if run.state == "finished":
        out.message(f"next: rekappa validate {run.spec.get('control_of') or run.id}")
    elif run.state.resumable:
        out.message(f"next: rekappa resume {run.id}")


@click.command()
@run_argument
@dry_run_option
@json_option
def pause(run: str, dry_run: bool, as_json: bool) -> None:
    """Let a running backfill wait before its next chunk or slice. `rekappa resume RUN` lets it go on."""
    from rekappa.operations.deeds import record_deed
    from rekappa.runs import control
    from rekappa.store.runs import RunStore

    out = output(as_json)
    store = RunStore.existing(Home.locate())
    found = control.backfill_run(store, run, "pause")
    if dry_run:
        out.record({"run": found.id, "state": found.state, "would": "pause"})
        return
    record_deed(Home.locate(), "pause", found.app, found.id)
    out.record({"run": control.pause(store, run).id, "asked": "pause"})


@click.command()
@run_argument
@dry_run_option
@json_option
def cancel(run: str, dry_run: bool, as_json: bool) -> None:
    """Give up a backfill. What it wrote stays in staging until `rekappa clean`."""
    from rekappa.operations.deeds import record_deed
    from rekappa.runs import control
    from rekappa.store.runs import RunStore

    out = output(as_json)
    store = RunStore.existing(Home.locate())
    found = control.backfill_run(store, run, "cancel")
    if dry_run:
        out.record({"run": found.id, "state": found.state, "would": "cancel"})
        return
    record_deed(Home.locate(), "cancel", found.app, found.id)
    ended = control.cancel(store, run)
    out.record({"run": ended.id, "state": ended.state, "asked": "cancel"})


@click.command()
@run_argument
@dry_run_option
@json_option
def resume(run: str, dry_run: bool, as_json: bool) -> None:
    """Go on with a backfill: one that is paused in its own process, one that was stopped, killed or failed in this one.

    What is in staging is not made again; no row is lost or doubled. The run goes on with the code that it began with.
    """
    from rekappa.operations.deeds import name_run, record_deed
    from rekappa.operations.runs import Resumption, resumption
    from rekappa.runs import control
    from rekappa.store.record import Wish
    from rekappa.store.runs import RunStore

    home, out = Home.locate(), output(as_json)
    store = RunStore.existing(home)
    found = control.backfill_run(store, run, "resume")
    waiting = resumption(found) is Resumption.THERE
    if dry_run:
        where = f"in process {found.pid}" if waiting else "in this process"
        out.record({"run": found.id, "state": found.state, "would": f"go on {where}"})
        return
    record_deed(home, "resume", found.app, found.id)
    if waiting:
        store.update(found.id, wish=Wish.GO)
        out.record({"run": found.id, "asked": "go on"})
        return
    name_run(home, found.id)
    if found.kind == "control":
        _resume_control(out, home, found)
        return
    from rekappa.config.bind import load_app
    from rekappa.runs.backfill import continue_backfill
    from rekappa.runs.code import as_begun
    from rekappa.runs.session import backfill_session
    from rekappa.staging.staged import load_run

    now = load_run(home, found)
    loaded = as_begun(home, found.id, now)
    if loaded is not now:
        click.echo(f"the code in {now.folder} has changed: the run goes on with the code it began with", err=True)
    bound = load_app(loaded)
    with out.progress(f"{loaded.config.app} backfill") as line:
        ended = continue_backfill(
            backfill_session(loaded, home), loaded, bound, home, found.id, on_progress=lambda now: _move(line, now)
        )
    _show_run(out, ended)


def _resume_control(out: Output, home: Home, run: Run) -> None:
    from rekappa.runs.session import backfill_session
    from rekappa.staging.staged import load_run
    from rekappa.store.runs import RunStore
    from rekappa.validate.controls import continue_control

    base = load_run(home, RunStore.existing(home).run(str(run.spec["control_of"])))
    with out.progress(f"{run.app} control") as line:
        ended = continue_control(
            backfill_session(base, home), home, run.id, base, on_progress=lambda now: _move(line, now)
        )
    _show_run(out, ended)
