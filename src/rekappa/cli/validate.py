"""`rekappa validate`: staging against production."""

from __future__ import annotations

from pathlib import Path

import click

from rekappa.cli.options import json_option, run_argument, set_option
from rekappa.cli.output import output
from rekappa.home import Home


@click.command()
@run_argument
@click.option("--ignore", multiple=True, metavar="COLUMN", help="Leave a column out; may be given several times.")
@click.option("--tolerance", type=float, default=0.0, help="Numbers may differ by this share of the larger one.")
@click.option("--threshold", type=float, default=100.0, show_default=True, help="Per cent that must match to pass.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write the report as a web page.")
@set_option
@json_option
def validate(
    run: str,
    ignore: tuple[str, ...],
    tolerance: float,
    threshold: float,
    html: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compare what RUN staged with production, key by key, and say why they differ.

    Passes when the match reaches the threshold, or when every difference has a known cause. The verdict is kept
    with the run; `rekappa publish` asks for it. Exit code 1 if it did not pass.

    \b
      rekappa validate backfill_20261101_130000_ab12
      rekappa validate RUN --ignore updated_at --tolerance 1e-9 --threshold 99.9 --html report.html
    """
    from rekappa.runs.backfill import backfill_session
    from rekappa.staging.staged import backfill_run, load_run, open_staged
    from rekappa.validate.html import page
    from rekappa.validate.report import show
    from rekappa.validate.run import Request
    from rekappa.validate.run import validate as compare

    if html is not None and not html.parent.is_dir():
        raise click.BadParameter(f"folder {html.parent} does not exist", param_hint="--html")
    request = Request(ignore, tolerance, threshold)
    home, out = Home.locate(), output(as_json)
    found = backfill_run(home, run)
    loaded = load_run(found, overrides)
    spark = backfill_session(loaded, home)
    staged = open_staged(spark, home, found, loaded)
    verdict = compare(spark, staged, request, tell=lambda text: click.echo(f"{text} …", err=True))
    if html is not None:
        html.write_text(page(verdict), encoding="utf-8")
    out.document(verdict.as_json())
    if not as_json:
        show(verdict, out)
    if html is not None:
        click.echo(f"report: {html}", err=True)
    if not verdict.passed:
        raise click.exceptions.Exit(1)
