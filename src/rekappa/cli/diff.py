"""`rekappa diff`: the differences of a validated run, all of them."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import click

from rekappa.cli.options import json_option, run_argument, set_option
from rekappa.cli.output import output
from rekappa.home import Home


@click.command()
@run_argument
@click.option("--sink", metavar="NAME", help="Which sink, where the run has several.")
@click.option(
    "--export", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write all: .parquet, .csv or .jsonl."
)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Without --export: how many.")
@set_option
@json_option
def diff(run: str, sink: str | None, file: Path | None, limit: int, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show the rows in which RUN differs from production, as it was when RUN was validated: why, and both sides.

    Each difference has its kind (different, missing, extra), its cause, the columns that differ, and the row in
    production and in staging. Of an Iceberg sink they can be had after publishing too.

    \b
      rekappa diff RUN
      rekappa diff RUN --export differences.parquet
    """
    from rekappa.runs.session import backfill_session
    from rekappa.staging.staged import backfill_run, load_run, open_staged, require_sinks, window_at_stake
    from rekappa.validate.differences import COLUMNS, differences
    from rekappa.validate.export import export, plain_rows, writer_of

    if file is not None:
        writer_of(file)
    home, out = Home.locate(), output(as_json)
    found = backfill_run(home, run)
    loaded = load_run(home, found, overrides)
    require_sinks(found, loaded, (sink,) if sink else ())
    spark = backfill_session(loaded, home)
    staged = open_staged(spark, home, found, loaded).narrowed(window_at_stake(found))
    with differences(spark, staged, sink, tell=lambda text: click.echo(f"{text} …", err=True)) as made:
        if file is not None:
            count = export(made.rows, file)
            out.document({"run": found.id, "sink": made.sink, "differences": count, "file": file})
            if not as_json:
                out.message(f"{count:,} differences of {made.sink} written to {file}")
            shown = count
        else:
            rows = list(islice(plain_rows(made.rows), limit))
            out.document(rows)
            if not as_json:
                listed = [tuple(row.values()) for row in rows]
                out.table(f"{made.sink}: {made.counted:,} differences", COLUMNS, listed)
            shown = made.rows.count()
            if shown > len(rows):
                click.echo(f"cut after {limit} of {shown:,}: --export FILE writes all", err=True)
    if shown != made.counted:
        click.echo(f"the validation counted {made.counted:,} differences: validate again", err=True)
