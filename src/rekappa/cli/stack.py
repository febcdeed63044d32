"""`rekappa up`, `down`, `status`: the local Kafka broker and Iceberg catalog of a project."""

from __future__ import annotations

from typing import Any

import click

from rekappa.cli.options import dry_run_option, json_option
from rekappa.cli.output import Output, output
from rekappa.home import Home


def _report(home: Home) -> dict[str, Any]:
    """The stack as data. `broker` is running, stopped, or crashed (ended without `rekappa down`)."""
    from rekappa.stack.state import read_record

    record = read_record(home)
    running = record.running() if record else None
    crashed = record is not None and record.process is not None and running is None
    return {
        "broker": "running" if running else "crashed" if crashed else "stopped",
        "bootstrap": running.bootstrap if running else None,
        "pid": running.pid if running else None,
        "started": running.started if running else None,
        "catalog": home.catalog if home.catalog.exists() else None,
        "folder": home.root,
        "log": home.logs / "broker.log",
    }


def _show_intent(out: Output, home: Home, intent: str) -> None:
    report = _report(home)
    happens = (report["broker"] == "running") == (intent == "stop the broker")
    out.document(report | {"would": intent if happens else None})
    out.message(f"would {intent}" if happens else "nothing to do")


@click.command()
@json_option
@dry_run_option
def up(as_json: bool, dry_run: bool) -> None:
    """Start the local Kafka broker of this project.

    Does nothing when it runs already; after a crash it starts again with the data it had.
    """
    home, out = Home.locate(), output(as_json)
    if dry_run:
        _show_intent(out, home, "start the broker")
        return
    from rekappa.stack.broker import status as running
    from rekappa.stack.broker import up as start

    if running(home) is None:
        click.echo("starting the broker …", err=True)
    start(home)
    out.record(_report(home))


@click.command()
@json_option
@dry_run_option
def down(as_json: bool, dry_run: bool) -> None:
    """Stop the local Kafka broker; topics, tables and logs stay."""
    home, out = Home.locate(), output(as_json)
    if dry_run:
        _show_intent(out, home, "stop the broker")
        return
    from rekappa.stack.broker import down as stop

    stop(home)
    out.record(_report(home))


@click.command()
@json_option
def status(as_json: bool) -> None:
    """Show whether the local broker runs, and where. `crashed` means that `rekappa up` would restart it."""
    output(as_json).record(_report(Home.locate()))
