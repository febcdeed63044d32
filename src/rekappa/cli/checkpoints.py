"""`rekappa checkpoints`, `savepoint`: what a live job can be restarted from, and keeping such a point by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from rekappa.cli.options import app_argument, dry_run_option, json_option, set_option
from rekappa.cli.output import output
from rekappa.home import Home

if TYPE_CHECKING:
    from rekappa.checkpoints.savepoints import Savepoint
    from rekappa.recovery.listing import KnownPoint
    from rekappa.store.record import Run
    from rekappa.store.runs import RunStore

SHOWN = 20
"""How many points of a query are shown to a person who does not ask for all."""


def _current(app: str, overrides: tuple[str, ...]) -> tuple[RunStore, Run]:
    from rekappa.config.load import load
    from rekappa.runs.current import current_run
    from rekappa.store.runs import RunStore

    store = RunStore.existing(Home.locate())
    return store, current_run(store, load(app, overrides=overrides))


@click.command()
@app_argument
@set_option
@click.option("--verify", is_flag=True, help="Open every snapshot of RocksDB and look for the files that it names.")
@click.option("--all", "everything", is_flag=True, help=f"Every point, not the newest {SHOWN} of each query.")
@json_option
def checkpoints(app: str, overrides: tuple[str, ...], verify: bool, everything: bool, as_json: bool) -> None:
    """List what APP's live job can be restarted from: committed micro-batches and savepoints, query by query.

    A batch can be restored while Spark's log of it and every piece of its state are there; otherwise the first
    file that it lacks is named. Looks at names of files alone, unless --verify. `rekappa rewind` goes back to one.

    \b
      rekappa checkpoints take_rate
      rekappa checkpoints take_rate --all --verify --json
    """
    from rekappa.recovery.listing import known_points

    store, run = _current(app, overrides)
    found = known_points(Home.locate(), store, run, verify=verify)
    out = output(as_json)
    if as_json:
        out.document([_plain(one) for one in found])
        return
    shown = found if everything else _newest(found)
    rows = [
        (one.query, one.batch, one.committed, _events(one), one.watermark, one.state, _verdict(one), one.savepoint)
        for one in shown
    ]
    title = f"Restart points of {run.id}"
    out.table(
        title, ["query", "batch", "committed", "events", "watermark", "state bytes", "restorable", "kept as"], rows
    )
    if len(shown) < len(found):
        out.message(f"{len(found) - len(shown)} older ones are not shown: --all shows them")


def _newest(found: tuple[KnownPoint, ...]) -> list[KnownPoint]:
    """The newest of each query, and all that are kept by name."""
    queries = dict.fromkeys(one.query for one in found)
    last = {id(one) for query in queries for one in [each for each in found if each.query == query][-SHOWN:]}
    return [one for one in found if id(one) in last or one.savepoint]


def _plain(one: KnownPoint) -> dict[str, Any]:
    from dataclasses import asdict

    offsets = [json.loads(line) if line and line.startswith("{") else line for line in one.offsets]
    return {**asdict(one), "offsets": offsets}


def _events(one: KnownPoint) -> int | None:
    """How many events of Kafka lie before the point, where all its sources are topics."""
    lines = [json.loads(line) for line in one.offsets if line and line.startswith("{")]
    try:
        return sum(int(end) for line in lines for parts in line.values() for end in parts.values())
    except (AttributeError, TypeError, ValueError):
        return None


def _verdict(one: KnownPoint) -> str:
    if one.restorable:
        return "yes"
    more = f" and {len(one.lacking) - 1} more" if len(one.lacking) > 1 else ""
    return f"no: lacks {one.lacking[0]}{more}"


@click.group()
def savepoint() -> None:
    """Keep a point of APP's live job under a name, whatever Spark purges later; list them; drop them.

    A live run takes one by itself every quarter of an hour; they thin out to one an hour, and go after three days.
    """


@savepoint.command()
@app_argument
@click.argument("name", required=False)
@set_option
@dry_run_option
@json_option
def take(app: str, name: str | None, overrides: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Keep the newest committed batch of every query of APP. The run goes on meanwhile.

    \b
      rekappa savepoint take take_rate before-the-release
    """
    from datetime import UTC, datetime

    from rekappa.checkpoints import savepoints
    from rekappa.operations.deeds import record_deed
    from rekappa.recovery.listing import queries_of

    home = Home.locate()
    store, run = _current(app, overrides)
    chosen = savepoints.name_for(datetime.now(UTC), automatic=False) if name is None else name
    savepoints.require_name(chosen)
    out = output(as_json)
    batches = savepoints.would_take(home, run.app, run.id, queries_of(store, run))
    if dry_run:
        out.record({"would_take": chosen, "run": run.id, "batches": batches})
    else:
        with store.claim([savepoints.lease_of(run.app, chosen)], f"take savepoint {chosen!r}"):
            record_deed(home, "savepoint", run.app, run.id, name=chosen)
            made = savepoints.take(home, run.app, run.id, queries_of(store, run), chosen)
        batches = dict(made.batches)
        out.record(_record(made), title="Savepoint")
    for query, one in savepoints.passed_over(home, run.app, run.id, batches).items():
        click.echo(
            f"query {query}: batch {batches[query]} is kept, not the newest: batch {one.batch} lacks {one.lacking[0]}",
            err=True,
        )


@savepoint.command("list")
@app_argument
@json_option
def list_(app: str, as_json: bool) -> None:
    """List APP's savepoints, oldest first."""
    from rekappa.checkpoints.savepoints import savepoints
    from rekappa.config.load import load

    found = savepoints(Home.locate(), load(app).config.app)
    rows = [(one.name, one.run, one.taken, one.automatic, dict(one.batches)) for one in found]
    for one in found:
        if one.damaged:
            hint = f"nothing can go back to it; `rekappa savepoint drop {one.app} {one.name}` removes it"
            click.echo(f"savepoint {one.name}: its savepoint.json is damaged: {hint}", err=True)
    output(as_json).table("Savepoints", ["name", "run", "taken", "automatic", "batches"], rows)


@savepoint.command()
@app_argument
@click.argument("name")
@dry_run_option
@json_option
def drop(app: str, name: str, dry_run: bool, as_json: bool) -> None:
    """Forget savepoint NAME of APP. What the run itself still has stays."""
    from rekappa.checkpoints import savepoints
    from rekappa.config.load import load
    from rekappa.operations.deeds import record_deed

    home = Home.locate()
    found = savepoints.savepoint(home, load(app).config.app, name)
    if not dry_run:
        record_deed(home, "drop savepoint", found.app, found.run, name=found.name)
        savepoints.drop(home, found)
    output(as_json).record({**_record(found), "dropped": not dry_run})


def _record(one: Savepoint) -> dict[str, Any]:
    return {"name": one.name, "app": one.app, "run": one.run, "taken": one.taken, "batches": dict(one.batches)}
