"""`rekappa up`, `down`, `status`: the local Kafka broker and Iceberg catalog of a project."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import click

from rekappa.home import Home

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
_dry_run = click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")


def _report(home: Home) -> dict[str, object]:
    """The stack as data. `broker` is running, stopped, or crashed (ended without `rekappa down`)."""
    from rekappa.stack.state import read_record

    record = read_record(home)
    running = record.running() if record else None
    crashed = record is not None and record.process is not None and running is None
    return {
        "broker": "running" if running else "crashed" if crashed else "stopped",
        "bootstrap": running.bootstrap if running else None,
        "pid": running.pid if running else None,
        "started": running.started.isoformat() if running else None,
        "catalog": str(home.catalog) if home.catalog.exists() else None,
        "home": str(home.root),
        "log": str(home.logs / "broker.log"),
    }


def _show(report: dict[str, object], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    if report["broker"] == "running":
        since = datetime.fromisoformat(str(report["started"])).astimezone(UTC)
        click.echo(
            f"broker   running at {report['bootstrap']}, pid {report['pid']}, since {since:%Y-%m-%d %H:%M:%S} UTC"
        )
    elif report["broker"] == "crashed":
        click.echo(f"broker   crashed; its log is {report['log']}\n         rekappa up starts it again with its data")
    else:
        click.echo("broker   stopped; rekappa up starts it")
    click.echo(f"catalog  {report['catalog'] or 'none yet; the first table makes it'}")
    click.echo(f"folder   {report['home']}")


def _show_intent(report: dict[str, object], intent: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report | {"would": intent}, indent=2))
    else:
        click.echo(f"would {intent}" if intent != "nothing" else "nothing to do")


@click.command()
@_as_json
@_dry_run
def up(as_json: bool, dry_run: bool) -> None:
    """Start the local Kafka broker of this project.

    Does nothing when it runs already; after a crash it starts again with the data it had.
    """
    home = Home.locate()
    if dry_run:
        report = _report(home)
        _show_intent(report, "nothing" if report["broker"] == "running" else "start the broker", as_json)
        return
    from rekappa.stack.broker import status as running
    from rekappa.stack.broker import up as start

    if running(home) is None:
        click.echo("starting the broker …", err=True)
    start(home)
    _show(_report(home), as_json)


@click.command()
@_as_json
@_dry_run
def down(as_json: bool, dry_run: bool) -> None:
    """Stop the local Kafka broker; topics, tables and logs stay."""
    home = Home.locate()
    if dry_run:
        report = _report(home)
        _show_intent(report, "stop the broker" if report["broker"] == "running" else "nothing", as_json)
        return
    from rekappa.stack.broker import down as stop

    stop(home)
    _show(_report(home), as_json)


@click.command()
@_as_json
def status(as_json: bool) -> None:
    """Show whether the local broker runs, and where."""
    _show(_report(Home.locate()), as_json)
