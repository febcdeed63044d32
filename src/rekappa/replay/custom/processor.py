"""A user's `StatefulProcessor`, driven one key at a time with its state in memory. Row and pandas flavours alike."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rekappa.replay.custom.handle import KeyHandle

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Processing:
    """A `Driven` around a processor that was initialised once; `begin` opens the next key."""

    def __init__(
        self,
        processor: Any,
        time_mode: str,
        key_names: tuple[str, ...],
        schemas: Mapping[str, StructType] | None = None,
        *,
        pandas: bool = False,
    ) -> None:
        # Looked up once: both are made for every event or timer.
        from pyspark.sql import Row
        from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

        self._expired, self._values = ExpiredTimerInfo, TimerValues
        self._timed, self._pandas = time_mode.lower() == "eventtime", pandas
        self._handle = KeyHandle(schemas, timed=self._timed)
        self._timers = self._handle.timers
        self._processor = processor
        self._key: Any = None
        self._named_key = Row(*key_names)
        self._told: dict[int, Any] = {}
        processor.init(self._handle)

    def begin(self, key: Any) -> None:
        self._key = tuple(_scalar(part) for part in key) if self._pandas else key
        self._handle.open()

    def start_from(self, rows: Iterable[Any], watermark: int) -> None:
        """The key's initial state: each row of it, before the first batch's own rows."""
        for row in rows:
            self._processor.handleInitialState(self._key, row, self._times(watermark))

    def take(self, rows: Iterator[Any], watermark: int) -> Iterable[Any]:
        given = map(_rebuilt, rows) if self._pandas else rows
        found: Iterable[Any] = self._processor.handleInputRows(self._key, given, self._times(watermark))
        return found

    @property
    def due(self) -> int | None:
        timers = self._timers
        return min(timers) if timers else None

    def expire(self, watermark: int) -> Iterator[Any]:
        # With events a key is a tuple, with a timer Spark makes it a Row, and bytes in it an array.
        key = self._named_key(*(bytearray(part) if isinstance(part, bytes) else part for part in self._key))
        # All that are due now, whatever the processor does about them meanwhile: Spark has listed them before too.
        for moment in self._handle.expired(watermark):
            yield from self._processor.handleExpiredTimer(
                key=key, timerValues=self._times(watermark), expiredTimerInfo=self._expired(moment)
            )
            self._timers.discard(moment)

    @property
    def held(self) -> str | None:
        """All that the key holds, written down; None if that is nothing."""
        variables, timers = self._handle.variables, self._timers
        return repr((sorted(variables.items()), sorted(timers))) if variables or timers else None

    def close(self) -> None:
        self._processor.close()

    def _times(self, watermark: int) -> Any:
        # Asked for with every event and every timer, and the same for all of a slice.
        told = self._told.get(watermark)
        if told is None:
            told = self._values(*((int(time.time() * 1000), watermark) if self._timed else (-1, -1)))
            self._told[watermark] = told
        return told


def _rebuilt(frame: Any) -> Any:
    """A frame made anew from its rows, whose column types pandas then finds by itself: so does Spark's worker."""
    import pandas as pd

    return pd.DataFrame(list(frame.itertuples(index=False)))


def _scalar(value: Any) -> Any:
    return value.item() if type(value).__module__ == "numpy" else value
