"""`rekappa advise`: which recovery fits, and why."""

from __future__ import annotations

import click

from rekappa.cli.options import app_argument, home_of_tables, json_option, set_option
from rekappa.cli.output import output
from rekappa.timeline import Window


@click.command()
@app_argument
@click.option("--start", required=True, help="Since when its output was wrong, or it stood still.")
@click.option("--end", required=True, help="Until when; not part of it.")
@click.option(
    "--trouble",
    type=click.Choice(["stopped", "wrong"]),
    default=None,
    help="What was the matter; if left out: stopped, if it ran no batch in that time, else wrong.",
)
@click.option("--state-wrong/--state-right", default=None, help="Whether its state is wrong as well, if you know.")
@set_option
@json_option
def advise(
    app: str,
    start: str,
    end: str,
    trouble: str | None,
    state_wrong: bool | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Say which recovery of APP fits an outage, and why, with the commands to copy. Changes nothing.

    It looks at the job's query (does it keep state, and for how long), the batches that can be restored, what Kafka has
    kept, what the archive holds and lacks, the kinds of sinks, and the known apps that read what APP writes.

    \b
      rekappa advise take_rate --start 2026-11-01T13:00Z --end 2026-11-01T16:00Z
      rekappa advise take_rate --start 2026-11-01T13:00Z --end 2026-11-01T16:00Z --state-right --json
    """
    from rekappa.config.bind import load_app
    from rekappa.config.load import load

    window, loaded = Window.parse(start, end), load(app, overrides=overrides)
    bound, home, out = load_app(loaded), home_of_tables(loaded.config), output(as_json)
    from rekappa.recovery.advice import advise as answer
    from rekappa.recovery.facts import gather
    from rekappa.recovery.outage import Trouble
    from rekappa.recovery.render import advice_lines
    from rekappa.runs.current import current_run
    from rekappa.runs.session import backfill_session
    from rekappa.store.runs import RunStore

    current_run(RunStore.existing(home), loaded)
    told = Trouble(trouble) if trouble else None
    spark = backfill_session(loaded, home)
    facts = gather(spark, loaded, bound, home, window, trouble=told, state_wrong=state_wrong)
    found = answer(facts)
    out.document({"facts": facts, "advice": found})
    if not out.is_json:
        for line in [line for one in found for line in advice_lines(one)]:
            out.message(line)
