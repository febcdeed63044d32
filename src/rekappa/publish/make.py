"""Making the plan of a publication: every check, every count, nothing touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekappa.errors import PublishError
from rekappa.publish.plan import Effect, PublishPlan, PublishState, SinkPlan
from rekappa.publish.publishers.choose import publisher_of
from rekappa.publish.publishers.contract import Publisher
from rekappa.publish.states import recorded
from rekappa.runs.migration import SinkMigration, refuse_misfit
from rekappa.staging.staged import Staged, StagedSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_publish_plan(spark: SparkSession, staged: Staged, *, force: bool = False) -> PublishPlan:
    """What `publish` will change, sink by sink. `force` leaves out the check for changes by others since the backfill
    was created; never the one that production is still what the plan was made on."""
    for one in staged.sinks:
        _require_columns(spark, staged, one)
    publishers = [publisher_of(spark, staged, one) for one in staged.sinks]
    parts = [plan_of(publisher, recorded(staged, publisher.part.sink), force) for publisher in publishers]
    return PublishPlan(staged.run.id, staged.window, tuple(parts))


def _require_columns(spark: SparkSession, staged: Staged, one: StagedSink) -> None:
    """Refuse a sink whose production has other columns than what was staged."""
    found = one.sink.changes(spark, one.made(spark))
    refuse_misfit("publish", staged.loaded.config.app, SinkMigration(one.name, found))
    if found.unfilled:
        raise PublishError(
            f"Cannot publish sink {one.name!r}: {found.where} has columns that were not staged: "
            f"{', '.join(found.unfilled)}",
            hint="Let the job make them, or drop them, and backfill again.",
        )


def plan_of(publisher: Publisher, known: PublishState, force: bool = False) -> SinkPlan:
    """One sink's part; `known` is what the store says of it."""
    part, state = publisher.part, publisher.state(known)
    if state is PublishState.PUBLISHED:
        return SinkPlan(part.sink, publisher.target, state, Effect(unchanged=part.rows.count()), None, part.staging)
    if state is PublishState.UNDOING:
        raise PublishError(
            f"Cannot publish sink {part.sink!r}: undoing it was cut short",
            hint=f"`rekappa undo {part.run}` completes it.",
        )
    effect, base = publisher.look(force=force)
    return SinkPlan(part.sink, publisher.target, state, effect, base, part.staging)
