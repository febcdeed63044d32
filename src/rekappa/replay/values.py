"""What a run over slices is given, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING

from rekappa.fence.line import Fence
from rekappa.spark.times import within
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class Signal(Enum):
    """What the run should do next. Looked at between slices."""

    GO = "go on"
    PAUSE = "wait before the next slice"
    STOP = "end before the next slice; the run can be resumed"


@dataclass(frozen=True, slots=True)
class ArchiveSource:
    """One source of the job: its table, the record's schema, the columns that the job uses (all, if none), and which
    rows count, if not all do."""

    table: str
    schema: StructType
    columns: Sequence[str] = ()
    fence: Fence | None = None


@dataclass(frozen=True, slots=True)
class SliceProgress:
    """The newest of a run. `slices` is the plan's number of slices, `reach` the time that has been reached."""

    done: int
    slices: int
    rows: int
    late_rows: int
    state_rows: int
    watermark: datetime | None
    reach: datetime | None
    paused: bool = False


@dataclass(frozen=True, slots=True)
class SliceOutcome:
    """How a run ended. `watermark` is the last at which what came out was final; what came out later was forced, and
    `not_final_from` is the earliest sink time of the window among that, None if there was none."""

    finished: bool
    slices: int
    rows: int
    late_rows: int
    peak_state_rows: int
    watermark: datetime | None
    not_final_from: datetime | None = None


@dataclass(frozen=True, slots=True)
class HoldBack:
    """Which output reaches the sink: rows whose `column` is in the window.

    Without a column the window is ingestion time, and a row is as old as what was read when it came out: a batch
    writes all its rows if its slice touches the window, and none if it does not, as in the warm-up, the drain and the
    closing batch, which reads nothing.

    `superseding` lets rows from after the window pass too: to a sink that upserts, such a row is a later version that
    takes the place of one in the window.
    """

    window: Window
    column: str | None = None
    superseding: bool = False

    def of(self, rows: DataFrame, reach: Window | None) -> DataFrame | None:
        if self.column is None:
            return rows if reach is not None and self._touches(reach) else None
        from pyspark.sql import functions as F

        moment = F.col(self.column)
        begun = moment >= F.lit(self.window.start)
        return rows.where(begun if self.superseding else within(moment, self.window))

    def _touches(self, reach: Window) -> bool:
        return reach.start < self.window.end and self.window.start < reach.end
