"""The streaming queries of an app, built and checked but not started."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rekappa.checkpoints.fingerprint import StatefulOperator
from rekappa.config.bind import Query
from rekappa.lookups.open import with_lookups
from rekappa.lookups.services import live_answers
from rekappa.runs.catch_up import Feeding
from rekappa.runs.live_run import LiveRun
from rekappa.spark.calling import results_of
from rekappa.spark.outputs import require_made, require_time
from rekappa.spark.plans.stateful import stateful_operators
from rekappa.spark.session import plain
from rekappa.spark.state import PROVIDER, state_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class BuiltQuery:
    """One query: the rows that it makes, and the state store that it wants."""

    query: Query
    rows: DataFrame
    provider: str

    @property
    def operators(self) -> tuple[StatefulOperator, ...]:
        """What its state will hold."""
        return tuple(StatefulOperator(*one) for one in stateful_operators(self.rows))


def build_queries(spark: SparkSession, live: LiveRun, feeding: Feeding) -> list[BuiltQuery]:
    """Call each job once over what it is fed with. Refuses what does not fit its sink; touches nothing."""
    config = live.loaded.config
    chosen = config.profiles.live.spark.get(PROVIDER)
    service = partial(live_answers, spark, config, live.home)
    built = []
    for job in live.app.jobs.values():
        own = [query for query in live.bound if query.job == job.name and feeding.takes(query)]
        given = with_lookups(spark, config, job, service) if own else job
        results = results_of(given, feeding.inputs(job)) if own else {}
        for query in own:
            rows, declared = feeding.query(query, results[query.output]), config.sinks[query.sink]
            require_made(rows.columns, query.sink, declared)
            require_time(rows.schema, query.output, declared.event_time)
            built.append(BuiltQuery(query, rows, plain(chosen) if chosen else state_store(rows)))
    return built
