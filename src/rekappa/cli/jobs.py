"""`rekappa start`, `jobs`: apps and routers that run detached and are looked after."""

from __future__ import annotations

from pathlib import Path

import click

from rekappa.cli.options import app_argument, dry_run_option, json_option
from rekappa.cli.output import output
from rekappa.home import Home


@click.command()
@app_argument
@click.option("--archive", is_flag=True, help="Its router, not the app itself.")
@click.option("--fresh", is_flag=True, help="Begin a new run with empty state instead of continuing the last one.")
@click.option("--restart", is_flag=True, help="Stop the app's live run first, if it is going.")
@dry_run_option
@json_option
def start(app: str, archive: bool, fresh: bool, restart: bool, dry_run: bool, as_json: bool) -> None:
    """Run APP live in a process of its own that goes on when you log out.

    A run that fails is started again, after pauses that grow, up to ten times in a row; then it is marked failed with
    its cause. What is refused, such as a wrong configuration, is not tried again. `rekappa stop RUN` ends it. Values
    kept with `rekappa config APP --keep` go with it.

    \b
      rekappa start examples/take_rate
      rekappa start examples/take_rate --archive
    """
    from rekappa.config.load import load
    from rekappa.operations.changes import begin, live_change, router_change
    from rekappa.operations.deeds import acting
    from rekappa.runs.stopping import stop_run
    from rekappa.store.record import Kind

    found, out = load(app), output(as_json)
    core = acting(Home.locate(), Path(found.folder))
    name = found.config.app
    change = router_change(core, name) if archive else live_change(core, name, fresh=fresh)
    if dry_run:
        out.record({"app": name, "would": ["rekappa", *change.words], "tells": list(change.tells)})
        return
    live = next(iter(core.store().page(1, app=name, kind=Kind.LIVE)), None)
    if restart and live is not None and live.state.going:
        core.desk().tell(core.who, core.face, "stop", name, live.id)
        stop_run(core.store(), live.id)
    task = begin(core, change)
    out.record({"job": task.id, "app": name, "state": task.state, "command": task.command})
    if not as_json:
        out.message("`rekappa jobs` shows how it is doing")


@click.command()
@click.argument("job", required=False)
@click.option("--all", "everything", is_flag=True, help="Those that have ended too.")
@click.option(
    "--stop", "ends", is_flag=True, help="End JOB: its command stops cleanly, also one that nobody looks after."
)
@click.option("--dismiss", is_flag=True, help="Tell no more of JOB, which failed or was lost.")
@click.option("--revive", is_flag=True, help="Start anew what was lost, for example when the machine went down.")
@dry_run_option
@json_option
def jobs(
    job: str | None, everything: bool, ends: bool, dismiss: bool, revive: bool, dry_run: bool, as_json: bool
) -> None:
    """List what runs detached: started with `rekappa start` or from the console. With JOB, that one and its log.

    `waiting` means that it failed and is started again soon; `lost` that the process that looks after it is gone,
    which --revive mends. Where its command still runs, --stop ends that first.
    """
    from rekappa.operations.deeds import record_deed
    from rekappa.operations.jobs import dismiss_change, stop_job_change
    from rekappa.tasks.ending import dismiss_task, stop_task
    from rekappa.tasks.files import log_file, tail
    from rekappa.tasks.standing import lost, task, tasks, to_be_seen
    from rekappa.tasks.start import revive as start_anew
    from rekappa.tasks.start import this_person

    home, out = Home.locate().existing(), output(as_json)
    if (ends or dismiss) and job is None:
        raise click.UsageError(f"--{'stop' if ends else 'dismiss'} needs a job: rekappa jobs JOB --stop")
    if ends and dismiss:
        raise click.UsageError("--stop and --dismiss exclude each other")
    if revive:
        found = lost(home) if dry_run else start_anew(home, this_person(), "cli")
    elif job is None:
        found = tasks(home) if everything else to_be_seen(tasks(home))
    else:
        one = task(home, job)
        if ends or dismiss:
            change = stop_job_change(one) if ends else dismiss_change(one)
            if not dry_run:
                record_deed(home, change.what, one.app, one.run, task=one.id)
                one = stop_task(home, job) if ends else dismiss_task(home, job)
        if as_json:
            out.document(one)
            return
        out.record({"job": one.id, "command": one.command, "state": one.state, "run": one.run, "error": one.error})
        for line in tail(log_file(home, one.id), 40):
            click.echo(line)
        return
    if as_json:
        out.document(found)
        return
    rows = [
        (one.id, one.app, one.run, one.state, one.restarts, one.next_start, one.who, one.command, one.error)
        for one in found
    ]
    out.table("Jobs", ["job", "app", "run", "state", "restarts", "next start", "who", "command", "error"], rows)
