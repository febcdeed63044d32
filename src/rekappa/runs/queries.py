"""Starting one streaming query: a job's output, batch by batch, into a sink."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event
from typing import TYPE_CHECKING, Any

from rekappa.sinks.contract import BatchId, Sink
from rekappa.spark.computing import compute
from rekappa.storage.location import Location
from rekappa.store.claim import Claim

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

AVAILABLE_NOW = timedelta(-1)
"""In place of an interval: read what is there, then end."""


class StopBetweenBatches(Exception):
    """Raised into a query that was asked to stop, before it writes its next batch. That batch is run again later."""


def start_query(
    rows: DataFrame,
    sink: Sink,
    claim: Claim,
    name: str,
    checkpoint: Location,
    trigger: timedelta,
    stop: Event,
    output_mode: str = "append",
    held_back: Callable[[int], bool] = lambda number: False,
) -> StreamingQuery:
    """Start writing; the query ends itself between two batches once `stop` is set.

    What a batch gives whose number is `held_back` is computed, which builds its state, and not written. The query
    fails, and writes nothing, from the first batch on for which the process no longer has its claim.
    """
    run = claim.run
    assert run is not None, "a query belongs to a run"

    def write(batch: DataFrame, number: int) -> None:
        if stop.is_set():
            raise StopBetweenBatches
        claim.check()
        if held_back(number):
            compute(batch)
        else:
            sink.write(batch, BatchId(run, name, number))

    writer = rows.writeStream.queryName(f"{run} {name}").foreachBatch(write).outputMode(output_mode)
    writer = writer.option("checkpointLocation", checkpoint.uri)
    if trigger == AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{int(trigger.total_seconds() * 1000)} milliseconds")
    return writer.start()


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """The newest that is known of one query.

    `rows_per_second` is the speed of the last batch that had rows; `lag` counts events that wait in Kafka.
    """

    query: str
    batch: int
    rows: int
    rows_per_second: float
    lag: int
    watermark: datetime | None
    state_rows: int
    late_rows: int


def _behind(source: dict[str, Any]) -> int:
    metrics = source.get("metrics") or {}
    latest, end = source.get("latestOffset"), source.get("endOffset")
    if isinstance(latest, dict) and isinstance(end, dict):
        return sum(
            max(0, int(offset) - int((end.get(topic) or {}).get(part, 0)))
            for topic, parts in latest.items()
            if isinstance(parts, dict)
            for part, offset in parts.items()
        )
    return int(float(metrics.get("maxOffsetsBehindLatest", 0)))


class ProgressReader:
    """Adds up one query's progress reports; each is counted once however often it is looked at."""

    def __init__(self, name: str, query: StreamingQuery) -> None:
        self.name = name
        self.query = query
        self._rows = 0
        self._late = 0
        self._seen = -1
        self._newest: dict[str, Any] = {}
        self._speed = 0.0

    def read(self) -> QueryProgress:
        for report in self.query.recentProgress:
            entry = json.loads(report.json) if hasattr(report, "json") else dict(report)
            if entry["batchId"] > self._seen and entry["numInputRows"] is not None:
                self._seen = entry["batchId"]
                self._rows += int(entry["numInputRows"])
                self._late += sum(int(op.get("numRowsDroppedByWatermark", 0)) for op in entry["stateOperators"])
                self._newest = entry
                self._speed = float(entry.get("processedRowsPerSecond") or 0.0) or self._speed
        newest = self._newest
        watermark = (newest.get("eventTime") or {}).get("watermark")
        moment = datetime.fromisoformat(watermark) if watermark else None
        return QueryProgress(
            query=self.name,
            batch=self._seen,
            rows=self._rows,
            rows_per_second=self._speed,
            lag=sum(_behind(source) for source in newest.get("sources", ())),
            watermark=moment if moment and moment.year > 1970 else None,
            state_rows=sum(int(op.get("numRowsTotal", 0)) for op in newest.get("stateOperators", ())),
            late_rows=self._late,
        )
