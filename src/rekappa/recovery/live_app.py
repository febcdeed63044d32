"""An app as its live job runs it, with what it takes to change that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rekappa.app import App
from rekappa.config.bind import Query, load_app, queries
from rekappa.config.load import Loaded, load
from rekappa.config.targets import target_of
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.recovery.listing import queries_of
from rekappa.recovery.plan import SLACK, QueryRewind, RewindPlan, SinkReset
from rekappa.recovery.resets.choose import resetter
from rekappa.recovery.resets.contract import Abandoned, Resetter
from rekappa.runs.current import live_lease
from rekappa.runs.live import live_session
from rekappa.sinks.registry import open_sink
from rekappa.store.record import Kind, Run
from rekappa.store.runs import RunStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def loaded_of(run: Run, *more: str) -> Loaded:
    """The configuration of a run's app as it is now, with the choices that the run was begun with, and `more` of
    them."""
    return load(run.folder, overrides=(*run.spec.get("overrides", ()), *more))


@dataclass(frozen=True)
class LiveApp:
    spark: SparkSession
    home: Home
    loaded: Loaded
    app: App

    @classmethod
    def of_run(cls, home: Home, run: Run) -> LiveApp:
        """The app of a live run, with the code as it is now and the choices that the run was begun with."""
        loaded = loaded_of(run)
        return cls(live_session(loaded, home), home, loaded, load_app(loaded))

    def session(self) -> SparkSession:
        """Spark under the app's own settings."""
        return live_session(self.loaded, self.home)

    @property
    def name(self) -> str:
        return self.loaded.config.app

    @property
    def store(self) -> RunStore:
        return RunStore.existing(self.home)

    @property
    def queries(self) -> tuple[Query, ...]:
        return queries(self.loaded.config, self.app)

    @property
    def leases(self) -> list[str]:
        """What one holds who writes its sinks."""
        return [live_lease(self.loaded, query) for query in self.queries]

    def resetter(self, operation: str, query: Query, part: QueryRewind) -> Resetter:
        """The way back of the query's sink."""
        config = self.loaded.config
        target = target_of(config.sinks[query.sink])
        gone = Abandoned(
            self.spark, config.app, operation, query.sink, target, query.name, part.abandoned, part.dead, part.since,
            self._begun_after(operation),
        )  # fmt: skip
        return resetter(gone, open_sink(query.sink, config, self.home))

    def _begun_after(self, operation: str) -> tuple[str, ...]:
        """The app's live runs that are newer than the one that an operation made, if it has."""
        newest_first = [run.id for run in self.store.runs(self.name, Kind.LIVE)]
        return tuple(newest_first[: newest_first.index(operation)]) if operation in newest_first else ()

    def resetters(self, plan: RewindPlan) -> Iterator[tuple[QueryRewind, Resetter]]:
        """Those of a plan that was agreed to; refused where the configuration has lost one of its sinks since."""
        bound = {query.name: query for query in self.queries}
        for part in plan.queries:
            if part.query not in bound:
                raise self._lacks(part.reset.sink or part.query)
            yield part, self.resetter(plan.operation, bound[part.query], part)

    def unplanned(self, plan: RewindPlan) -> Iterator[tuple[QueryRewind, Resetter]]:
        """Those of what the run that went on has written to sinks that the rewind knew nothing of."""
        known, bound = {part.query for part in plan.queries}, {query.name: query for query in self.queries}
        made = self.store.run(plan.operation)
        for name in queries_of(self.store, made):
            if name in known or not self.store.has_written(made.id, name):
                continue
            if name not in bound:
                raise self._lacks(name)
            reset = SinkReset(bound[name].sink)
            part = QueryRewind(name, plan.run, -1, None, None, None, None, (), (), made.created - SLACK, reset=reset)
            yield part, self.resetter(plan.operation, bound[name], part)

    def _lacks(self, sink: str) -> RunError:
        return RunError(
            f"Cannot go on with the rewind of {self.name!r}: its configuration no longer has sink {sink!r}",
            hint="Put it back, and try again.",
        )
