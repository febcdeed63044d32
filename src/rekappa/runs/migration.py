"""Sink tables that follow their jobs: what each would need, and doing it.

    made = make_migration(spark, loaded, app, home)
    carry_out(spark, loaded, home, made)

Only what loses nothing is done: nullable columns are added, types widened. Everything is looked at before anything is
touched, so a table that can't follow stops the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rekappa.app import App
from rekappa.config.bind import queries
from rekappa.config.load import Loaded
from rekappa.errors import RunError, SinkError
from rekappa.home import Home
from rekappa.lookups.open import with_empty_lookups
from rekappa.sinks.changes import Changes
from rekappa.sinks.registry import open_sink
from rekappa.sources.decode import record_type
from rekappa.sources.open import named_source
from rekappa.spark.probes import output_schemas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from rekappa.sinks.contract import Sink

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SinkMigration:
    """What one sink's table needs to take its job's rows."""

    sink: str
    changes: Changes


def make_migration(
    spark: SparkSession, loaded: Loaded, app: App, home: Home, only: Collection[str] = ()
) -> tuple[SinkMigration, ...]:
    """What the tables of these sinks (all, if none is named) need, by the jobs as they are now. Touches nothing."""
    return tuple(
        SinkMigration(name, open_sink(name, loaded.config, home).changes(spark, schema))
        for name, schema in _schemas(spark, loaded, app, only).items()
    )


def _schemas(spark: SparkSession, loaded: Loaded, app: App, only: Collection[str]) -> dict[str, StructType]:
    """What the jobs make for each of these sinks; for all, if none is named."""
    config = loaded.config
    unknown = [name for name in only if name not in config.sinks]
    if unknown:
        raise RunError(
            f"Cannot find sink {unknown[0]!r} in app {config.app!r}", hint=f"It has: {', '.join(config.sinks)}."
        )
    found: dict[str, StructType] = {}
    for job in app.jobs.values():
        wanted = [one for one in queries(config, app) if one.job == job.name and (not only or one.sink in only)]
        if wanted:
            sources = {name: named_source(loaded, name) for name in job.sources}
            records = {name: record_type(source, loaded.folder) for name, source in sources.items()}
            made = output_schemas(spark, with_empty_lookups(spark, config, job), records)
            found |= {query.sink: made[query.output] for query in wanted}
    return found


def carry_out(spark: SparkSession, loaded: Loaded, home: Home, made: Sequence[SinkMigration]) -> None:
    """Alter every table that needs it; refuses, before the first, if one of them can't follow."""
    for one in made:
        require_possible(one)
    for one in made:
        if one.changes.steps:
            open_sink(one.sink, loaded.config, home).evolve(spark, one.changes.steps)


def require_possible(one: SinkMigration) -> None:
    if one.changes.stuck:
        raise RunError(
            f"Cannot migrate sink {one.sink!r}: {one.changes.where}: {'; '.join(one.changes.stuck)}",
            hint="Nothing was altered. --sink migrates the others.",
        )


def prepare_sinks(
    spark: SparkSession, loaded: Loaded, sinks: Sequence[tuple[Sink, StructType]], tell: Tell = lambda text: None
) -> None:
    """Make every sink ready for its rows. A table that lacks columns is altered if its sink says `evolve: true`, and
    refused otherwise, before any is touched."""
    config = loaded.config
    found = [SinkMigration(sink.name, sink.changes(spark, schema)) for sink, schema in sinks]
    for one in found:
        if one.changes.stuck or not config.sinks[one.sink].evolve:
            refuse_misfit("write", config.app, one)
    for (sink, schema), one in zip(sinks, found, strict=True):
        for step in one.changes.steps:
            tell(f"sink {sink.name}: {one.changes.where}: {step}")
        if one.changes.steps:
            sink.evolve(spark, one.changes.steps)
        sink.prepare(spark, schema)


def require_publishable(spark: SparkSession, loaded: Loaded, app: App, home: Home, only: Collection[str]) -> None:
    """Refuse to make what production could not take. A server that is away is no reason: publishing asks it again."""
    for name, schema in _schemas(spark, loaded, app, only).items():
        try:
            found = open_sink(name, loaded.config, home).changes(spark, schema)
        except SinkError:
            continue
        refuse_misfit("backfill", loaded.config.app, SinkMigration(name, found))


def refuse_misfit(doing: str, app: str, one: SinkMigration) -> None:
    """Refuse rows that the sink's table can't take as it is, with the way out."""
    changes = one.changes
    if changes.fits:
        return
    lacks = "; ".join([*changes.stuck, *(f"it would have to {step}" for step in changes.steps)])
    hint = (
        "Change the job's select, or the table; or name another table."
        if changes.stuck
        else f"`rekappa migrate {app}` does that, --dry-run shows it first; with sinks.{one.sink}.evolve: true every "
        "live run does."
    )
    raise RunError(
        f"Cannot {doing} sink {one.sink!r}: {changes.where} can't take what the job makes: {lacks}", hint=hint
    )
