"""What every sink's way back promises."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from rekappa.checkpoints.restarts import Leg
from rekappa.iceberg.commits import BATCH, WRITER
from rekappa.iceberg.lineage import REWIND, REWIND_UNDONE, Summary
from rekappa.recovery.plan import SinkReset
from rekappa.sinks.contract import BatchId

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Abandoned:
    """The batches of one query that no longer count. None of them was written before `since`.

    `operation` names the rewind, and is the run that goes on. `dead` are the app's runs of which nothing counts then.
    `newer` are those that were begun after it: when it is undone they have been abandoned, and so undone, before.
    """

    spark: SparkSession
    app: str
    operation: str
    sink: str
    target: str
    query: str
    legs: tuple[Leg, ...]
    dead: tuple[str, ...]
    since: datetime
    newer: tuple[str, ...] = ()

    def is_own(self, said: Summary) -> bool:
        """Whether a commit is of an abandoned batch that counted until now."""
        writer, batch = said(WRITER), int(said(BATCH) or -1)
        return any(writer == BatchId(leg.run, self.query, 0).writer and leg.holds(batch) for leg in self.legs)

    def is_later(self, said: Summary) -> bool:
        """Whether it is of a batch after the point, be it one that an earlier rewind had abandoned."""
        writer, batch = said(WRITER), int(said(BATCH) or -1)
        return any(writer == BatchId(leg.run, self.query, 0).writer and batch > leg.after for leg in self.legs)

    def is_of_the_dead(self, said: Summary) -> bool:
        """Whether it is by a run that will not count at all any more, or a rewind to one."""
        return self._is_of(self.dead, said)

    def is_new(self, said: Summary) -> bool:
        """Whether it is by the run that goes on."""
        return said(WRITER) == BatchId(self.operation, self.query, 0).writer

    def is_of_the_newer(self, said: Summary) -> bool:
        """Whether it is by a run that went on from that one and was abandoned, or a rewind to one."""
        return self._is_of(self.newer, said)

    def _is_of(self, runs: tuple[str, ...], said: Summary) -> bool:
        by = [BatchId(run, self.query, 0).writer for run in runs]
        return said(WRITER) in by or said(REWIND) in runs or said(REWIND_UNDONE) in runs


class Resetter(Protocol):
    """`carry_out` and `undo` may be repeated: what is done is not done again."""

    def look(self) -> SinkReset:
        """What would happen. Touches nothing; refuses what can't be taken back."""

    def carry_out(self) -> None:
        """Take back what the abandoned batches wrote."""

    def look_back(self) -> None:
        """Refuses what `undo` could not bring back. Touches nothing."""

    def undo(self) -> None:
        """Bring it back, and take out what the run that went on has written."""
