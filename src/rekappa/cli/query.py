"""`rekappa query`: look at what an app made."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from rekappa.cli.options import app_argument, home_of_tables, json_option, set_option
from rekappa.cli.output import Output, output
from rekappa.errors import InputError, RunError
from rekappa.home import Home

if TYPE_CHECKING:
    from rekappa.config.load import Loaded
    from rekappa.query.ask import Answer
    from rekappa.store.record import Run

LIMIT = 100


@click.command()
@app_argument
@click.argument("sql", required=False)
@click.option("--run", "run_id", metavar="RUN", help="The backfill whose staging is meant by staging.SINK.")
@click.option("--limit", type=click.IntRange(0), default=LIMIT, show_default=True, help="At most so many rows; 0: all.")
@click.option("--csv", "as_csv", is_flag=True, help="Print rows as CSV on stdout.")
@set_option
@json_option
def query(
    app: str,
    sql: str | None,
    run_id: str | None,
    limit: int,
    as_csv: bool,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Answer SQL over APP's tables; without SQL, list them. Only reads: nothing can be changed.

    \b
      SINK                    what a sink holds: production
      staging.SINK            what a backfill staged for it (--run RUN), as the sink would hold it
      archive.SOURCE          the archive of a source
      dead_letters.SOURCE     its messages that are no events, with the reason

    Full names (lake.events.impressions, lake.demo.plays.snapshots) can be used too. Times are in UTC.

    \b
      rekappa query plays "select count(*) from plays where playback_id is not null"
      rekappa query plays "select * from staging.plays except select * from plays" --run RUN --csv
    """
    from rekappa.config.load import load
    from rekappa.query.ask import ask
    from rekappa.query.statement import require_query
    from rekappa.query.tables import tables

    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other")
    home, out = Home.locate(), output(as_json)
    run = _run(home, run_id)
    loaded = load(app, overrides=(*(run.spec.get("overrides", ()) if run else ()), *overrides))
    if run is not None and run.app != loaded.config.app:
        raise InputError(f"Cannot use run {run.id}: it is of app {run.app!r}, not {loaded.config.app!r}")
    known = tables(loaded, home, run)
    if sql is None:
        out.table("Tables", ["table", "what", "where"], [(one.name, one.what, one.where) for one in known])
        return
    require_query(sql)
    _require_run(home, loaded, sql, run)
    home_of_tables(loaded.config)
    from rekappa.runs.session import backfill_session

    answer = ask(backfill_session(loaded, home), known, sql, limit or None)
    _show(out, answer, as_csv)


def _run(home: Home, run_id: str | None) -> Run | None:
    from rekappa.store.record import Kind
    from rekappa.store.runs import RunStore

    if run_id is None:
        return None
    run = RunStore.existing(home).run(run_id)
    if run.kind not in (Kind.BACKFILL, Kind.CONTROL):
        raise InputError(f"Cannot use run {run.id}: a {run.kind} run stages nothing", hint="`rekappa runs` lists them.")
    return run


def _require_run(home: Home, loaded: Loaded, sql: str, run: Run | None) -> None:
    from rekappa.query.statement import mentioned
    from rekappa.store.record import Kind
    from rekappa.store.runs import RunStore

    if run is not None or not (named := mentioned(sql, [f"staging.{sink}" for sink in loaded.config.sinks])):
        return
    runs: list[Run] = []
    with suppress(RunError):
        runs = RunStore.existing(home).runs(loaded.config.app, Kind.BACKFILL)
    hint = f"The newest is --run {runs[0].id}" if runs else "There has been no backfill of this app yet."
    raise InputError(f"Cannot read {sorted(named)[0]}: which run staged it is not said", hint=hint)


def _show(out: Output, answer: Answer, as_csv: bool) -> None:
    cut = [False]

    def bounded() -> Iterator[tuple[Any, ...]]:
        for number, row in enumerate(answer.rows):
            if number == answer.limit:
                cut[0] = True
                return
            yield row

    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows([_cell(value) for value in row] for row in bounded())
    elif out.is_json:
        twice = [name for name in answer.columns if answer.columns.count(name) > 1]
        if twice:
            raise InputError(
                f"Cannot write column {twice[0]!r} as JSON: the answer has it twice",
                hint="Name each with AS, or --csv.",
            )
        out.document([dict(zip(answer.columns, row, strict=True)) for row in bounded()])
    else:
        out.table("", answer.columns, [["-" if v is None else _cell(v) for v in row] for row in bounded()])
    if cut[0]:
        click.echo(f"cut after {answer.limit} rows: --limit 0 gives all", err=True)


def _cell(value: Any) -> str | None:
    """A value as text: nothing rounded; nested ones as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
