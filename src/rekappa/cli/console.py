"""`rekappa console`: every operation in a browser."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from rekappa.cli.options import dry_run_option, json_option
from rekappa.cli.output import output
from rekappa.errors import RunError, SetupError
from rekappa.home import Home
from rekappa.timeline import parse_duration

PORT = 8787
_file = click.Path(exists=True, dir_okay=False, path_type=Path)


def require_packages() -> None:
    missing = [name for name in ("fastapi", "jinja2", "uvicorn", "prometheus_client") if find_spec(name) is None]
    if missing:
        raise SetupError(
            f"Cannot serve the console: the package {missing[0]} is not installed",
            hint="pip install 'rekappa[console]'",
        )


def free_port(wanted: int = PORT) -> int:
    """The usual port, or any that is free."""
    import socket

    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", wanted))
        except OSError:
            tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", type=click.IntRange(1, 65535), default=PORT, show_default=True, help="At which port.")
@click.option("--certificate", type=_file, help="A TLS certificate, with --key.")
@click.option("--key", type=_file, help="The certificate's private key.")
@click.option("--behind-proxy", is_flag=True, help="A proxy in front does TLS.")
@click.option("--alert-lag", type=click.IntRange(min=0), default=100_000, show_default=True, help="Events behind.")
@click.option("--alert-behind", default="15m", show_default=True, help="How far behind an archive may be complete.")
@click.option("--revive", is_flag=True, help="First start anew the jobs that were lost when the machine went down.")
@dry_run_option
@json_option
def console(
    host: str,
    port: int,
    certificate: Path | None,
    key: Path | None,
    behind_proxy: bool,
    alert_lag: int,
    alert_behind: str,
    revive: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Serve the console: apps, runs, backfills, validation, publication and archive in a browser.

    Shows the apps in the current folder and just below it. Runs are processes of their own: the console can be stopped
    and started at any time. Without a login (`rekappa users add`) it prints an address that lets you in, and listens on
    this machine only; beyond it, it needs a login and TLS. REKAPPA_WEBHOOK names an address that is told of alerts.

    \b
      rekappa console
      rekappa console --host 0.0.0.0 --certificate cert.pem --key key.pem
      rekappa console --behind-proxy
    """
    require_packages()
    from rekappa.console.alerts import Bounds
    from rekappa.console.serve import Serving, require_safe, serve
    from rekappa.store.desk import Desk

    if (certificate is None) != (key is None):
        raise click.UsageError("--certificate and --key go together")
    try:
        bounds = Bounds(alert_lag, parse_duration(alert_behind))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--alert-behind") from None
    serving, home, out = Serving(host, port, certificate, key, behind_proxy, bounds), Home.locate(), output(as_json)
    if dry_run:
        desk = Desk.found(home)
        require_safe(serving, desk.people() if desk else [])
        out.record({"would_listen": f"{host}:{port}", "folder": Path.cwd(), "project": home.root})
        return

    def started(address: str) -> None:
        if as_json:
            out.record({"address": address})
        else:
            click.echo(f"open {address}", err=True)
            click.echo("Ctrl-C stops the console; what it started goes on.", err=True)

    require_safe(serving, Desk.open(home).people())
    if revive:
        from rekappa.tasks.start import revive as start_anew
        from rekappa.tasks.start import this_person

        try:
            for one in start_anew(home, this_person(), "console"):
                click.echo(f"started anew: {one.command}", err=True)
        except RunError as error:  # Said, and no reason not to serve: the page of jobs shows it.
            click.echo(f"error: {error.message}", err=True)
    serve(home, Path.cwd(), serving, started)
