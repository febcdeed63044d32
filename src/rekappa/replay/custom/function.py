"""A function of `applyInPandasWithState`, driven one key at a time with its state in memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rekappa.replay.custom.values import through

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NONE = -1
"""No timeout is set, as Spark writes it."""


class Applying:
    """A `Driven` around a function of key, frames and `GroupState`.

    A call that neither updates nor removes the state nor sets a timeout leaves both as they were; any other call sets
    the timeout anew: one that it does not set is gone. A key times out once the watermark is past its timeout.
    """

    def __init__(
        self, function: Any, state_schema: StructType, timeout_conf: str, columns: list[str], *, watermarked: bool
    ) -> None:
        self._function, self._schema, self._conf = function, state_schema, timeout_conf
        self._columns, self._watermarked = columns, watermarked
        self._stored = through(state_schema)
        self._key: Any = None
        self._value: tuple[Any, ...] | None = None
        self._timeout = NONE

    def begin(self, key: Any) -> None:
        self._key, self._value, self._timeout = key, None, NONE

    def take(self, rows: Iterator[Any], watermark: int) -> Iterator[Any]:
        return self._call(rows, watermark, timed_out=False)

    @property
    def due(self) -> int | None:
        # Strictly before the watermark, unlike a timer of transformWithState.
        return self._timeout + 1 if self._timeout != NONE and self._conf == "EventTimeTimeout" else None

    def expire(self, watermark: int) -> Iterator[Any]:
        import pandas as pd

        return self._call(iter([pd.DataFrame(columns=self._columns)]), watermark, timed_out=True)

    @property
    def held(self) -> str | None:
        """All that the key holds, written down; None if that is nothing."""
        return None if self._value is None and self._timeout == NONE else repr((self._value, self._timeout))

    def close(self) -> None:
        """Nothing to let go."""

    def _call(self, frames: Iterator[Any], watermark: int, *, timed_out: bool) -> Iterator[Any]:
        from pyspark.sql import Row
        from pyspark.sql.streaming.state import GroupState

        held = self._value
        state = GroupState(
            optionalValue=Row(*held) if held is not None else None,  # type: ignore[arg-type]
            batchProcessingTimeMs=int(time.time() * 1000),
            eventTimeWatermarkMs=watermark if self._watermarked else NONE,
            timeoutConf=self._conf,
            hasTimedOut=timed_out,
            watermarkPresent=self._watermarked,
            defined=held is not None,
            updated=False,
            removed=False,
            timeoutTimestamp=NONE,
            keyAsUnsafe=b"",
            valueSchema=self._schema,
        )
        for frame in self._function(self._key, frames, state):
            if len(frame):
                yield frame
        timeout = int(state._timeout_timestamp)
        if state._removed and timeout == NONE:
            self._value, self._timeout = None, NONE
        elif state._updated or state._removed or timeout != NONE:
            self._value = self._stored(tuple(state._value)) if state.exists else None
            self._timeout = timeout
