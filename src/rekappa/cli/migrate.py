"""`rekappa migrate`: sink tables that follow their jobs."""

from __future__ import annotations

import click

from rekappa.cli.options import app_argument, dry_run_option, home_of_tables, json_option, set_option
from rekappa.cli.output import output


@click.command()
@app_argument
@click.option("--sink", "sinks", multiple=True, help="Only this sink; may be repeated. All, if left out.")
@set_option
@dry_run_option
@json_option
def migrate(app: str, sinks: tuple[str, ...], overrides: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Give the tables of APP's sinks the columns that its jobs have gained, and the wider types.

    Adds nullable columns and widens types where every value stays what it is; nothing else. If one table can't follow
    its job, it is said why and what is possible, and none is altered. A live run may go on meanwhile.

    \b
      rekappa migrate take_rate --dry-run
      rekappa migrate take_rate --sink plays
    """
    from rekappa.config.bind import load_app
    from rekappa.config.load import load
    from rekappa.operations.deeds import record_deed
    from rekappa.runs.migration import carry_out, make_migration, require_possible
    from rekappa.runs.session import backfill_session

    loaded = load(app, overrides=overrides)
    bound, home, out = load_app(loaded), home_of_tables(loaded.config), output(as_json)
    spark = backfill_session(loaded, home)
    made = make_migration(spark, loaded, bound, home, sinks)
    for one in made:
        require_possible(one)
    steps = [f"{one.sink}: {step}" for one in made for step in one.changes.steps]
    if not dry_run:
        if steps:
            record_deed(home, "migrate", loaded.config.app, steps=steps)
        carry_out(spark, loaded, home, made)
    rows = [(one.sink, one.changes.where, str(step)) for one in made for step in one.changes.steps]
    out.table("Would alter" if dry_run else "Altered", ["sink", "table", "step"], rows)
    if not rows:
        out.message("every table takes its job's rows as it is")
