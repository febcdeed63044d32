"""The streaming queries of an app, built and checked but not started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rekappa.app import App
from rekappa.checkpoints.fingerprint import StatefulOperator
from rekappa.config.bind import Query, queries
from rekappa.config.load import Loaded
from rekappa.home import Home
from rekappa.replay.batches import Feed, feeds
from rekappa.sources.open import open_stream
from rekappa.spark.calling import results_of
from rekappa.spark.outputs import require_made, require_time
from rekappa.spark.plans.stateful import stateful_operators
from rekappa.spark.session import plain
from rekappa.spark.state import PROVIDER, state_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class BuiltQuery:
    """One query: the rows that it makes, what it reads and in which order, and the state store that it wants."""

    query: Query
    rows: DataFrame
    feeds: tuple[Feed, ...]
    provider: str

    @property
    def operators(self) -> tuple[StatefulOperator, ...]:
        """What its state will hold."""
        return tuple(StatefulOperator(*one) for one in stateful_operators(self.rows))


def build_queries(spark: SparkSession, loaded: Loaded, app: App, home: Home) -> list[BuiltQuery]:
    """Call each job once over its selected sources. Refuses what does not fit its sink; touches nothing."""
    config = loaded.config
    bound = queries(config, app)
    chosen = config.profiles.live.spark.get(PROVIDER)
    built = []
    for job in app.jobs.values():
        inputs = {name: open_stream(spark, loaded, home, name) for name in job.sources}
        results = results_of(job, inputs)
        for query in (query for query in bound if query.job == job.name):
            rows, declared = results[query.output], config.sinks[query.sink]
            require_made(rows.columns, query.sink, declared)
            require_time(rows.schema, query.output, declared.event_time)
            provider = plain(chosen) if chosen else state_store(rows)
            built.append(BuiltQuery(query, rows, feeds(config, job), provider))
    return built
