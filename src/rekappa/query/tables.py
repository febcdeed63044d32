"""The tables that a query may name, and how each is opened.

plays                       what the sink `plays` holds: production
staging.plays               what a backfill staged for it, as the sink would hold it
archive.impressions         the archive of the source `impressions`
dead_letters.impressions    its messages that could not be decoded, with the reason
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rekappa.archive.tables import Route, routes
from rekappa.config.model import HiveCandidate, IcebergCandidate
from rekappa.config.targets import target_of
from rekappa.errors import ArchiveError, InputError, SourceError
from rekappa.home import Home
from rekappa.sinks.registry import open_sink
from rekappa.sources.open import open_batch, past_candidate
from rekappa.staging.staged import StagedSink, window_of
from rekappa.staging.tables import staging_table
from rekappa.store.record import Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rekappa.config.load import Loaded

Open = Callable[["SparkSession"], "DataFrame"]


@dataclass(frozen=True, slots=True)
class Table:
    """One name: what it stands for, and how to open it. Opening refuses with an error what is not there."""

    name: str
    what: str
    where: str
    open: Open


def tables(loaded: Loaded, home: Home, run: Run | None = None) -> list[Table]:
    """Every table of the app; those in `staging` are the run's, if one is given."""
    config = loaded.config
    found = [
        Table(name, f"sink ({spec.type})", target_of(spec), _sink(loaded, home, name))
        for name, spec in config.sinks.items()
    ]
    if run is not None:
        for name in run.spec.get("sinks") or list(config.sinks):
            if name in config.sinks:
                table = staging_table(config, run.id, name)
                found.append(Table(f"staging.{name}", f"staged by {run.id}", table, _staged(loaded, home, run, name)))
    for name in config.sources:
        found += _archive(loaded, home, name)
    found += [
        Table(f"dead_letters.{route.source_name}", "messages that are no events", route.dead_letters, _dead(route))
        for route in _routes(loaded)
    ]
    return found


def _routes(loaded: Loaded) -> list[Route]:
    try:
        return routes(loaded)
    except ArchiveError:
        return []


def _sink(loaded: Loaded, home: Home, name: str) -> Open:
    def opened(spark: SparkSession) -> DataFrame:
        rows = open_sink(name, loaded.config, home).read(spark)
        if rows is None:
            raise InputError(
                f"Cannot read sink {name!r}: a {loaded.config.sinks[name].type} sink can't be read back",
                hint="Query the staging of a run (--run RUN) or the archive.",
            )
        return rows

    return opened


def _staged(loaded: Loaded, home: Home, run: Run, name: str) -> Open:
    def opened(spark: SparkSession) -> DataFrame:
        table = staging_table(loaded.config, run.id, name)
        if not spark.catalog.tableExists(table):
            raise InputError(
                f"Cannot read staging of run {run.id}: {table} does not exist",
                hint="The run has written nothing, or `rekappa clean` has removed it.",
            )
        return StagedSink(name, table, open_sink(name, loaded.config, home), window_of(run)).rows(spark)

    return opened


def _archive(loaded: Loaded, home: Home, name: str) -> list[Table]:
    try:
        _, candidate = past_candidate(name, loaded.config.sources[name])
    except SourceError:
        return []

    def opened(spark: SparkSession) -> DataFrame:
        if isinstance(candidate, HiveCandidate):
            return open_batch(spark, loaded, home, name, None)
        return _existing(spark, candidate, loaded.config.app)

    where = candidate.table if isinstance(candidate, IcebergCandidate) else f"{candidate.database}.{candidate.table}"
    return [Table(f"archive.{name}", "archive", where, opened)]


def _existing(spark: SparkSession, candidate: IcebergCandidate, app: str) -> DataFrame:
    if not spark.catalog.tableExists(candidate.table):
        raise InputError(
            f"Cannot read archive table {candidate.table!r}: it does not exist",
            hint=f"Fill it first: rekappa archive run {app}",
        )
    return spark.table(candidate.table)


def _dead(route: Route) -> Open:
    def opened(spark: SparkSession) -> DataFrame:
        from pyspark.sql import functions as F

        if not spark.catalog.tableExists(route.dead_letters):
            raise InputError(
                f"Cannot read dead letters {route.dead_letters!r}: the table does not exist",
                hint=f"It is made with the archive: rekappa archive run {route.app}",
            )
        rows = spark.table(route.dead_letters).where(F.col("source") == route.source_name)
        return rows.withColumn("value", F.col("value").cast("string"))

    return opened
