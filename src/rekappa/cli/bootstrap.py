"""`rekappa bootstrap`: history, then live, in one state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rekappa.cli.options import app_argument, dry_run_option, home_of_tables, json_option, set_option
from rekappa.cli.output import Output, output
from rekappa.cli.run import live_progress
from rekappa.cli.runs import show_run
from rekappa.timeline import format_instant

if TYPE_CHECKING:
    from rekappa.recovery.bootstrap import BootstrapPlan

COLUMNS = ["source", "region", "topic", "partition", "from", "written from", "archive ends", "Kafka ends"]


@click.command()
@app_argument
@click.option("--from", "since", required=True, help="Where history begins, in ingestion time: 7d (ago), or a time.")
@click.option("--write-history", is_flag=True, help="Write what history gives, too, instead of holding it back.")
@click.option("--append-again", is_flag=True, help="With --write-history: append also where a run has appended before.")
@click.option("--allow-gaps", is_flag=True, help="Offsets that nobody has any more held no message (transactions).")
@click.option("--available-now", is_flag=True, help="End when caught up with Kafka.")
@set_option
@dry_run_option
@json_option
def bootstrap(
    app: str,
    since: str,
    write_history: bool,
    append_again: bool,
    allow_gaps: bool,
    available_now: bool,
    overrides: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Build the state of APP from the archive, then carry on from Kafka at exactly the next offset.

    For a job whose state is lost, or whose code no longer fits it, and for one that shall begin with a past. It begins
    a new run whose first batches read the archive, with live's own settings; the same checkpoint then goes on from
    Kafka. Stopped or killed, `rekappa run APP` goes on with it.

    What history gives is held back: where a run of APP has written before, everything that comes from events which that
    run had read, so that its output is carried on without a gap or a duplicate; else all that the archive holds now.

    \b
      rekappa bootstrap take_rate --from 7d --dry-run
      rekappa bootstrap take_rate --from 7d
      rekappa bootstrap take_rate --from 2026-11-01T00:00Z --write-history    into a new table, say
    """
    from rekappa.config.bind import load_app
    from rekappa.config.load import load

    loaded = load(app, overrides=overrides)
    bound, home, out = load_app(loaded), home_of_tables(loaded.config), output(as_json)
    from rekappa.operations.advice import since_when
    from rekappa.recovery.bootstrap import BootstrapRequest, plan_bootstrap
    from rekappa.recovery.bootstrap import bootstrap as begin
    from rekappa.runs.live import live_session

    request = BootstrapRequest(since_when(since), write_history, append_again, allow_gaps)
    if dry_run:
        _show(out, plan_bootstrap(live_session(loaded, home), loaded, bound, home, request))
        return
    with live_progress(out, f"{loaded.config.app} bootstrap", deed="bootstrap") as shown:
        ended = begin(loaded, bound, home, request, available_now=available_now, **shown)
    show_run(out, home, ended.id)


def _show(out: Output, plan: BootstrapPlan) -> None:
    rows, batches = plan.rows(), plan.batches
    if out.is_json:
        out.document(
            {
                "since": plan.history.since,
                "output": "held back" if plan.history.held else "written",
                "after": plan.after,
                "batches": batches,
                "rows": plan.found.rows,
                "partitions": [
                    dict(zip((one.replace(" ", "_").lower() for one in COLUMNS), row, strict=True)) for row in rows
                ],
            }
        )
        return
    out.record(
        {
            "since": format_instant(plan.history.since),
            "output of history": "held back" if plan.history.held else "written",
            "carries on": plan.after or None,
            "micro-batches of history": batches,
            "events in the archive, at most": plan.found.rows,
        },
        "Would bootstrap",
    )
    out.table("", COLUMNS, rows)
