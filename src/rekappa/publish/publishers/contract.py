"""What every publisher promises, and what it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rekappa.errors import PublishError
from rekappa.iceberg.commits import last_batch
from rekappa.publish.plan import Effect, PublishState, SinkPlan
from rekappa.sinks.contract import BatchId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rekappa.sinks.iceberg import IcebergAppend
    from rekappa.timeline import Window

Begin = Callable[[], None]


@dataclass(frozen=True)
class Part:
    """One sink's part of a staged run. `rows` is what the sink shall hold: of every key its last version. `keys` are
    those of the rows, and those that the run removed.

    `baseline` is production's snapshot when the backfill was created, `known` False if nobody noted one. `before`
    names a table in staging for the rows that are replaced, for sinks that keep no history.
    """

    spark: SparkSession
    sink: str
    run: str
    window: Window
    regions: tuple[str, ...]
    rows: DataFrame
    keys: DataFrame
    staging: int | None
    baseline: int | None
    known: bool
    before: Callable[[str], IcebergAppend]

    def copied(self, run: str) -> bool:
        """Whether the table `before` holds all that is replaced: one that was only made, in vain, holds nothing."""
        table = self.before(run).table
        if not self.spark.catalog.tableExists(table):
            return False
        return last_batch(self.spark, table, copy_of(run).writer) is not None


def copy_of(run: str) -> BatchId:
    """The one batch that the table `before` of a run is written by."""
    return BatchId(run, "before", 0)


class Publisher(Protocol):
    """Puts a staged window into production, and takes it out again. Made by `choose.publisher_of`.

    Every call may be repeated: what is done is not done twice, what was cut short is completed.
    """

    @property
    def part(self) -> Part: ...

    @property
    def target(self) -> str:
        """Production's name for people."""

    @property
    def stays(self) -> str | None:
        """Why what was published can't be taken out again; None where it can."""

    def state(self, recorded: PublishState) -> PublishState:
        """What production holds: by its own history where it has one, else as the store says."""

    def look(self, *, force: bool) -> tuple[Effect, str | None]:
        """What publishing would change now, and the base it was seen on. Makes every check; touches nothing.

        `force` leaves out the check for changes by others since the baseline.
        """

    def publish(self, plan: SinkPlan, begin: Begin) -> Effect:
        """Make production hold the staged rows and no others of the window; keep what is needed to undo.

        Refuses if production is not the plan's base any more. Calls `begin` before it touches anything, unless all
        is one atomic commit.
        """

    def undo(self, begin: Begin, *, force: bool) -> Effect:
        """Give the window back the rows it had before. `force` goes on over changes by others since then."""


def require_base(plan: SinkPlan, base: str | None) -> None:
    """Refuse to carry out a plan that was made on another state of production."""
    if base != plan.base:
        raise PublishError(
            f"Cannot publish sink {plan.sink!r} as planned: production was changed since the plan was made",
            hint="Publish again: it is planned anew.",
        )
