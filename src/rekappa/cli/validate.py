"""`rekappa validate`: staging against production."""

from __future__ import annotations

from pathlib import Path

import click

from rekappa.cli.options import NumberRange, json_option, run_argument, set_option
from rekappa.cli.output import output
from rekappa.home import Home


@click.command()
@run_argument
@click.option("--ignore", multiple=True, metavar="COLUMN", help="Leave a column out; may be given several times.")
@click.option(
    "--tolerance", type=NumberRange(0, 1), default=0.0, help="Numbers may differ by this share of the larger one."
)
@click.option(
    "--expect",
    multiple=True,
    metavar="TEXT",
    help="What the change in code may change: changed=COLUMN,missing=0,extra<=5%. For one of several sinks: 'SINK: …'; "
    "may be repeated.",
)
@click.option(
    "--late", type=click.Choice(["keep", "drop"]), help="Whether rows with events that production dropped may pass."
)
@click.option("--final-only", is_flag=True, help="Judge, and later publish, the window up to its last final instant.")
@click.option("--no-control", is_flag=True, help="Compare only: run nothing, explain nothing.")
@click.option("--live-run", default=None, help="Production's run, if several wrote to the sink.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write the report as a web page.")
@set_option
@json_option
def validate(
    run: str,
    ignore: tuple[str, ...],
    tolerance: float,
    expect: tuple[str, ...],
    late: str | None,
    final_only: bool,
    no_control: bool,
    live_run: str | None,
    html: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compare what RUN staged with production, key by key, and show by control runs why they differ.

    Passes when every difference is shown to be the change in code, as expected, or an event that production dropped
    as late. Without --expect a change by code needs a yes at `rekappa publish`. The verdict is kept with the run. Exit
    code 1 if it failed; killed, the same command goes on with the control that was running.

    \b
      rekappa validate backfill_20261101_130000_ab12
      rekappa validate RUN --expect changed=playback_id,missing=0,extra=0 --html report.html
    """
    from rekappa.operations.deeds import record_deed, record_outcome
    from rekappa.runs.session import backfill_session
    from rekappa.staging.staged import backfill_run, load_run, open_staged
    from rekappa.validate.final import final_window
    from rekappa.validate.html import page
    from rekappa.validate.report import show
    from rekappa.validate.result import Late, Outcome
    from rekappa.validate.run import Request, expectations, require_known
    from rekappa.validate.run import validate as compare

    if html is not None and not html.parent.is_dir():
        raise click.BadParameter(f"folder {html.parent} does not exist", param_hint="--html")
    home, out = Home.locate(), output(as_json)
    found = backfill_run(home, run)
    loaded = load_run(home, found, overrides)
    told = expectations(expect, tuple(loaded.config.sinks))
    request = Request(ignore, tolerance, told, Late(late) if late else None, not no_control, live_run)
    require_known(home, found, loaded, request)
    record_deed(home, "validate", found.app, found.id, expect=list(expect))
    spark = backfill_session(loaded, home)
    staged = open_staged(spark, home, found, loaded)
    if final_only:
        staged = staged.narrowed(final_window(staged))
    verdict = compare(spark, staged, request, tell=lambda text: click.echo(f"{text} …", err=True))
    record_outcome(home, "verdict", found.app, found.id, outcome=str(verdict.outcome))
    if html is not None:
        html.write_text(page(verdict), encoding="utf-8")
    out.document(verdict.as_json())
    if not as_json:
        show(verdict, out)
    if html is not None:
        click.echo(f"report: {html}", err=True)
    if verdict.outcome is Outcome.FAILED:
        raise click.exceptions.Exit(1)
