"""A finished backfill and what it staged: what validate, publish, undo and clean start from."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rekappa.config.load import Loaded, load, require_production
from rekappa.errors import RunError, SinkError
from rekappa.home import Home
from rekappa.iceberg.selection import InWindow
from rekappa.record import METADATA, REGION
from rekappa.sinks.contract import in_window, window_column
from rekappa.sinks.keys import staying
from rekappa.sinks.registry import open_sink
from rekappa.spark.names import quoted
from rekappa.staging.tables import staging_table
from rekappa.staging.versions import BATCH, last_versions
from rekappa.store.kept import folder_of
from rekappa.store.record import Kind, Run, State
from rekappa.store.runs import RunStore
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from rekappa.sinks.contract import Sink


@dataclass(frozen=True, slots=True)
class StagedSink:
    """One sink of the run: its staging table and its production side."""

    name: str
    table: str
    sink: Sink
    window: Window

    def rows(self, spark: SparkSession) -> DataFrame:
        """What production would hold of the window, had it run this: the last version of a key, where it upserts."""
        return staying(self._last(spark), self.sink.deletes)

    def made(self, spark: SparkSession) -> StructType:
        """The columns that the job made, among them one that only marks rows which remove their key."""
        from pyspark.sql.types import StructType

        return StructType([field for field in spark.table(self.table).schema if field.name != BATCH])

    def keys(self, spark: SparkSession) -> DataFrame:
        """The keys that the run wrote last in the window, those that it removed among them."""
        return self._last(spark).select(*(quoted(name) for name in self.sink.key)).distinct()

    def _last(self, spark: SparkSession) -> DataFrame:
        rows = spark.table(self.table)
        if BATCH in rows.columns:
            rows = last_versions(rows, self.sink.key, self.sink.event_time, self.sink.version)
        # A key whose last version lies outside the window has no row in it, whatever it was before.
        timed = self.sink.event_time is not None or METADATA in rows.columns
        return in_window(rows, self.sink.event_time, self.window, self.name) if timed else rows


@dataclass(frozen=True, slots=True)
class Staged:
    """A run's staging. `sinks` are those that are worked on, `names` all that the run has."""

    run: Run
    window: Window
    loaded: Loaded
    home: Home
    sinks: tuple[StagedSink, ...]
    names: tuple[str, ...]

    def only(self, wanted: Collection[str]) -> Staged:
        """The same for these sinks alone, for all of them if none is named; refuses a name that the run has not."""
        require_sinks(self.run, self.loaded, wanted)
        return replace(self, sinks=tuple(one for one in self.sinks if not wanted or one.name in wanted))

    def narrowed(self, window: Window) -> Staged:
        """The same run, but only what it staged for this part of its window."""
        return replace(self, window=window, sinks=tuple(replace(one, window=window) for one in self.sinks))


def keyed_only(spark: SparkSession, one: StagedSink) -> bool:
    """Whether the sink has keys but nothing that says which window a row belongs to."""
    return bool(one.sink.key) and one.sink.event_time is None and METADATA not in one.rows(spark).columns


def span_of(spark: SparkSession, staged: Staged, one: StagedSink) -> InWindow:
    """Which rows of the sink the run made anew: those of its window and, if it chose regions, of these."""
    schema = one.rows(spark).schema
    try:
        column = window_column(schema, one.sink.event_time, one.name)
    except SinkError as error:
        raise RunError(error.message, hint=error.hint) from None
    regions = tuple(staged.run.spec.get("regions") or ())
    if not regions:
        return InWindow(column, staged.window)
    named = REGION if METADATA in schema.names else "region" if "region" in schema.names else None
    if named is None:
        raise RunError(
            f"Cannot tell the rows of region {', '.join(regions)} in sink {one.name!r}: it has no column `region`",
            hint="Add the region to the job's result, or backfill all regions.",
        )
    return InWindow(column, staged.window, named, regions)


def load_run(home: Home, run: Run, overrides: tuple[str, ...] = ()) -> Loaded:
    """The app's configuration as the run had it, and what is overridden now; elsewhere, that of the kept code."""
    return load(folder_of(home, run), overrides=(*run.spec.get("overrides", ()), *overrides))


def backfill_run(home: Home, run_id: str) -> Run:
    """The run, if it is a backfill that has finished; refuses every other."""
    run = RunStore.existing(home).run(run_id)
    if run.kind is not Kind.BACKFILL:
        raise RunError(
            f"Cannot use run {run.id}: it is a {run.kind} run, only a backfill has something staged",
            hint="`rekappa runs` lists the backfills.",
        )
    if run.state.going:
        raise RunError(
            f"Cannot use run {run.id}: it is still going", hint=f"Wait for it, or `rekappa cancel {run.id}`."
        )
    if run.state is not State.FINISHED:
        raise RunError(
            f"Cannot use run {run.id}: it is {run.state}, not finished", hint=f"`rekappa resume {run.id}` completes it."
        )
    return run


def sinks_of(run: Run, loaded: Loaded) -> list[str]:
    """The sinks that the run staged for."""
    return run.spec.get("sinks") or list(loaded.config.sinks)


def require_sinks(run: Run, loaded: Loaded, wanted: Collection[str]) -> None:
    """Refuse a name that is no sink of the run: before Spark is started for it."""
    known = sinks_of(run, loaded)
    if unknown := [name for name in wanted if name not in known]:
        raise RunError(f"Cannot find sink {unknown[0]!r} in run {run.id}", hint=f"It has: {', '.join(known)}.")


def window_of(run: Run) -> Window:
    try:
        return Window.parse(str(run.spec["start"]), str(run.spec["end"]))
    except KeyError:
        raise RunError(f"Cannot use run {run.id}: its record has no window") from None


def window_at_stake(run: Run) -> Window:
    """What of the run publishing is about: what production holds of it; before that, what its verdict was given for."""
    published, judged = run.publication or {}, run.validation or {}
    told = (published if published.get("state") != "undone" else {}).get("window") or judged.get("window")
    return Window.parse(told["start"], told["end"]) if told else window_of(run)


def open_staged(spark: SparkSession, home: Home, run: Run, loaded: Loaded | None = None) -> Staged:
    """What the run left in staging. Refuses when any of its staging tables is gone."""
    loaded = loaded or load_run(home, run)
    require_production(loaded, f"use run {run.id}")
    config = loaded.config
    named = sinks_of(run, loaded)
    window = window_of(run)
    found, absent = [], []
    for name in named:
        table = staging_table(config, run.id, name)
        if spark.catalog.tableExists(table):
            found.append(StagedSink(name, table, open_sink(name, config, home), window))
        else:
            absent.append(table)
    if absent:
        raise RunError(
            f"Cannot find the staging of run {run.id}: {', '.join(absent)} does not exist",
            hint="Staging is removed by `rekappa clean`; backfill the window again.",
        )
    return Staged(run, window, loaded, home, tuple(found), tuple(named))
