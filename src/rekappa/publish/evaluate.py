"""Carrying out the plan of a publication, and undoing it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from rekappa.errors import PublishError
from rekappa.publish.plan import PublishPlan, PublishState, Undone
from rekappa.publish.publishers.choose import publisher_of
from rekappa.publish.states import record, recorded
from rekappa.staging.staged import Staged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tell = Callable[[str], None]


def publish(spark: SparkSession, staged: Staged, plan: PublishPlan, *, tell: Tell = lambda text: None) -> None:
    """Make production hold what the plan says, one atomic step per table. Repeated, it completes or changes nothing."""
    for one, part in zip(staged.sinks, plan.sinks, strict=True):
        if not part.done:
            publisher = publisher_of(spark, staged, one)
            if publisher.part.staging != part.staging:
                raise PublishError(
                    f"Cannot publish sink {one.name!r} as planned: its staging was written to since",
                    hint=f"`rekappa validate {plan.run}` and publish again.",
                )
            tell(f"publishing {one.name} to {part.target}")
            publisher.publish(part, partial(record, staged, one.name, PublishState.PUBLISHING))
        record(staged, one.name, PublishState.PUBLISHED)


def undo(
    spark: SparkSession, staged: Staged, *, force: bool = False, tell: Tell = lambda text: None
) -> tuple[Undone, ...]:
    """Bring back each sink's window. Sinks whose rows stay are said so and left; refuses if there are no others."""
    states = undo_states(spark, staged)
    done = []
    for one in staged.sinks:
        publisher = publisher_of(spark, staged, one)
        state = states[one.name]
        if state is PublishState.NEVER:
            continue
        if publisher.stays is not None:
            done.append(Undone(one.name, state, stays=publisher.stays))
            continue
        if state is PublishState.UNDONE:
            done.append(Undone(one.name, state))
            record(staged, one.name, state)
            continue
        tell(f"undoing {one.name}")
        effect = publisher.undo(partial(record, staged, one.name, PublishState.UNDOING), force=force)
        record(staged, one.name, PublishState.UNDONE)
        done.append(Undone(one.name, PublishState.UNDONE, effect, happened=True))
    return tuple(done)


def undo_states(spark: SparkSession, staged: Staged) -> dict[str, PublishState]:
    """What production holds of the run, sink by sink; refuses where there is nothing that could be undone."""
    publishers = {one.name: publisher_of(spark, staged, one) for one in staged.sinks}
    states = {name: publisher.state(recorded(staged, name)) for name, publisher in publishers.items()}
    there = [name for name, state in states.items() if state is not PublishState.NEVER]
    if not there:
        raise PublishError(f"Cannot undo run {staged.run.id}: it was not published")
    lasting = [f"{name}: {publishers[name].stays}" for name in there if publishers[name].stays is not None]
    if len(lasting) == len(there):
        raise PublishError(f"Cannot undo run {staged.run.id}: {'; '.join(lasting)}")
    return states
