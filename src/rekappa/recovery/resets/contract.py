"""What every sink's way back promises."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from rekappa.checkpoints.restarts import Leg
from rekappa.recovery.plan import SinkReset
from rekappa.sinks.contract import BatchId

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Abandoned:
    """The batches of one query that no longer count. None of them was written before `since`.

    `operation` names the rewind, and is the run that goes on.
    """

    spark: SparkSession
    operation: str
    sink: str
    target: str
    query: str
    legs: tuple[Leg, ...]
    since: datetime

    def is_own(self, writer: str, batch: int) -> bool:
        """Whether a commit with this stamp is one of them."""
        return any(writer == BatchId(leg.run, self.query, 0).writer and leg.holds(batch) for leg in self.legs)

    def is_new(self, writer: str, batch: int) -> bool:
        """Whether it is one of the run that goes on."""
        return writer == BatchId(self.operation, self.query, 0).writer


class Resetter(Protocol):
    """`carry_out` and `undo` may be repeated: what is done is not done again."""

    def look(self) -> SinkReset:
        """What would happen. Touches nothing; refuses what can't be taken back."""

    def carry_out(self) -> None:
        """Take back what the abandoned batches wrote."""

    def undo(self) -> None:
        """Bring it back, and take out what the run that went on has written."""
