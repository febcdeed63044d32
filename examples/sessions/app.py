"""Sessions: playback events of an account, no more than five minutes apart, turned into one row."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import StructType

from rekappa import App

app = App("sessions")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
GAP = timedelta(minutes=5) // MICROSECOND
OPEN = StructType().add("first", "long").add("last", "long").add("events", "long")
SESSION = (
    StructType()
    .add("account_id", "long")
    .add("session_start", "timestamp")
    .add("session_end", "timestamp")
    .add("events", "long")
)

Span = tuple[int, int, int]
"""First and last event in microseconds, and how many there were."""


def merge(spans: list[Span]) -> list[Span]:
    """Spans that touch or lie within the gap become one. The order of the input does not matter."""
    merged: list[Span] = []
    for first, last, events in sorted(spans):
        if merged and first - merged[-1][1] <= GAP:
            start, end, count = merged[-1]
            merged[-1] = (start, max(end, last), count + events)
        else:
            merged.append((first, last, events))
    return merged


class Sessions(StatefulProcessor):
    """Keeps the open sessions of one account; an event-time timer closes each when its gap has passed."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.open = handle.getListState("open", OPEN)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        before = [tuple(span) for span in self.open.get()]
        times = [_micros(row.event_ts) for row in rows]
        spans = merge(before + [(moment, moment, 1) for moment in times])
        self.open.put(spans)
        # One timer for each open session. Every call goes to Spark's state store: only what changed is told.
        old, new = ({_closes(span) for span in some} for some in (before, spans))
        for moment in old - new:
            self.handle.deleteTimer(moment)
        for moment in new - old:
            self.handle.registerTimer(moment)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        now = timerValues.getCurrentWatermarkInMs()
        spans = [tuple(span) for span in self.open.get()]
        closed = [span for span in spans if _closes(span) <= now]
        still_open = [span for span in spans if _closes(span) > now]
        if still_open:
            self.open.put(still_open)
        else:
            self.open.clear()
        for first, last, events in closed:
            yield Row(account_id=key[0], session_start=_moment(first), session_end=_moment(last), events=events)

    def close(self) -> None:
        pass


def _closes(span: Span) -> int:
    """When the session is over for certain, in milliseconds."""
    return (span[1] + GAP) // 1000 + 1


def _micros(moment: datetime) -> int:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - EPOCH) // MICROSECOND


def _moment(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


@app.job
def sessions(playback_events: DataFrame) -> DataFrame:
    """One row per session, when it is over."""
    return (
        playback_events.withWatermark("event_ts", "10 minutes")
        .groupBy("account_id")
        .transformWithState(
            statefulProcessor=Sessions(), outputStructType=SESSION, outputMode="Append", timeMode="EventTime"
        )
    )
