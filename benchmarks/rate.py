"""How well a cap on rows per second is kept, and what it costs.

Kept: many parallel tasks share one cap; "of_cap" is what passed per second over what may pass, "busiest_second" the
fullest second (a second may hold one burst, a tenth of the cap, more). Cost: the same scan to nowhere with
`rate_limit(df, None)` and without the call, and, for comparison, with a cap that is never reached.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rekappa import limit_calls, rate_limit
from rekappa.config.model import AppConfig
from rekappa.home import Home
from rekappa.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CAPS = ((500.0, 8), (20_000.0, 8))
SECONDS = 8
SCANNED = 20_000_000
ROUNDS = 5


def _when(batches: Iterable[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        yield pa.RecordBatch.from_pydict({"at": [time.time()], "rows": [batch.num_rows]})


def kept(spark: SparkSession, cap: float, tasks: int) -> dict[str, Any]:
    """Let rows through a cap for some seconds, noting when each piece passed."""
    rows = int(cap * SECONDS)
    frame = spark.range(0, rows, 1, tasks).toDF("id")
    calls = frame.mapInArrow(limit_calls(_when, cap, f"cap {cap}"), "at DOUBLE, rows BIGINT")
    passed = sorted((row.at, row.rows) for row in calls.collect())
    first, last = passed[0][0], passed[-1][0]
    seconds = Counter[int]()
    for at, count in passed:
        seconds[int(at - first)] += count
    # What came with the first piece was there at the start; the rate is what came after it.
    rate = (rows - passed[0][1]) / (last - first)
    began = time.monotonic()
    rate_limit(frame, cap, f"operator {cap}").write.format("noop").mode("overwrite").save()
    return {
        "operator_of_cap": round(rows / (time.monotonic() - began) / cap, 3),
        "cap": cap,
        "tasks": tasks,
        "rows": rows,
        "of_cap": round(rate / cap, 3),
        "busiest_second": round(max(seconds.values()) / cap, 3),
    }


def _scan(frame: DataFrame) -> float:
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def cost(spark: SparkSession) -> dict[str, Any]:
    """The same work with no call, with no cap, and with a cap that is never reached, in turns."""
    plain = spark.range(0, SCANNED, 1, 2).selectExpr("id", "id % 1000 AS show", "CAST(id AS STRING) AS name")
    contenders = {"plain": plain, "unset": rate_limit(plain, None), "never_reached": rate_limit(plain, 1e12, "huge")}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(ROUNDS + 1):
        for name, frame in contenders.items():
            taken = _scan(frame)
            if number:
                times[name].append(taken)
    middle = {name: statistics.median(taken) for name, taken in times.items()}
    return {
        "rows": SCANNED,
        "seconds": {name: round(value, 3) for name, value in middle.items()},
        "unset_to_plain": round(middle["unset"] / middle["plain"], 3),
        "never_reached_to_plain": round(middle["never_reached"] / middle["plain"], 3),
    }


def main() -> dict[str, Any]:
    config = AppConfig.model_validate(
        {
            "app": "bench",
            "sources": {
                "events": {
                    "schema": "id BIGINT",
                    "event_time": "id",
                    "candidates": {"live": {"type": "kafka", "topic": "events"}},
                }
            },
            "sinks": {"out": {"type": "null"}},
            "profiles": {"live": {"master": "local[8]"}},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        spark = open_session(config, "live", Home(Path(folder)))
        try:
            kept(spark, 100_000.0, 8)
            return {"kept": [kept(spark, cap, tasks) for cap, tasks in CAPS], "cost": cost(spark)}
        finally:
            spark.stop()


if __name__ == "__main__":
    print(main())
