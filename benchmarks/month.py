"""A month in bulk, as 30 chunks of a day: whether time grows with the days, and the driver's memory does not.

Heap is what the JVM holds after a collection, at the end of a chunk; resident is that of the Python driver. The month
is small (REKAPPA_MONTH_ROWS a day): what grows with the number of chunks would show just as well.
"""

from __future__ import annotations

import math
import os
import resource
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rekappa.record import METADATA_TYPE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 10, 1, tzinfo=UTC)
DAYS = 30
ROWS = int(os.environ.get("REKAPPA_MONTH_ROWS", "100000"))
CONFIG = """
app: month
sources:
  plays:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {type: kafka, topic: plays}
      past: {type: iceberg, table: lake.events.plays}
sinks:
  counted: {type: iceberg, table: lake.month.counted, event_time: start}
"""
APP = '''
from pyspark.sql import functions as F
from rekappa import App

app = App("month")


@app.job
def counted(plays):
    """Plays of a show in ten minutes."""
    timed = plays.withWatermark("event_ts", "10 minutes")
    by = timed.groupBy(F.window("event_ts", "10 minutes").alias("w"), (F.col("id") % 100).alias("show"))
    return by.count().select(F.col("w.start").alias("start"), "show", "count")
'''


def main() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "month")
        root.mkdir()
        (root / "app.py").write_text(APP)
        (root / "rekappa.yaml").write_text(CONFIG)
        return _measured(root)


def _measured(root: Path) -> dict[str, Any]:
    from rekappa.config.bind import load_app
    from rekappa.config.load import load
    from rekappa.home import Home
    from rekappa.plan.plan import Chunk, Mode
    from rekappa.planning.make import BackfillRequest, make_plan
    from rekappa.runs.backfill import run_backfill
    from rekappa.runs.session import backfill_session
    from rekappa.runs.work import Progress
    from rekappa.timeline import Window

    loaded, home = load(root), Home(root / ".rekappa").made()
    app, spark = load_app(loaded), backfill_session(loaded, home)
    _archive(spark)
    window = Window(START, START + timedelta(days=DAYS))
    request = BackfillRequest(window, mode=Mode.BULK, allow_incomplete=True)
    (job,) = make_plan(spark, loaded, app, home, request).jobs
    days = [Window(START + timedelta(days=day), START + timedelta(days=day + 1)) for day in range(DAYS)]
    chunks = tuple(Chunk(day, one, one.widened(job.warm_up, job.drain)) for day, one in enumerate(days))
    plan = replace(make_plan(spark, loaded, app, home, request), jobs=(replace(job, chunks=chunks),))
    began, ends = time.monotonic(), dict[int, float]()
    heap, resident = dict[int, int](), dict[int, int]()

    def look(progress: Progress) -> None:
        if progress.done in ends or not progress.done:
            return
        ends[progress.done] = time.monotonic() - began
        heap[progress.done] = _heap(spark)
        resident[progress.done] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    run_backfill(spark, loaded, app, home, request, plan=plan, on_progress=look)
    third = DAYS // 3
    # The first chunks pay for what is loaded and compiled once.
    middle, last = ends[2 * third] - ends[third], ends[DAYS] - ends[2 * third]
    spark.stop()
    return {
        "rows_a_day": ROWS,
        "seconds_by_day": {str(day): round(ends[day], 1) for day in (1, third, 2 * third, DAYS)},
        "last_third_to_middle_third": round(last / middle, 2),
        "exponent_10_to_30_days": round(math.log(ends[DAYS] / ends[third]) / math.log(3), 2),
        "heap_bytes_by_day": {str(day): heap[day] for day in (third, 2 * third, DAYS)},
        "resident_bytes_by_day": {str(day): resident[day] for day in (third, 2 * third, DAYS)},
    }


def _heap(spark: SparkSession) -> int:
    jvm: Any = spark._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def _archive(spark: SparkSession) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.events")
    spark.sql(
        f"CREATE TABLE lake.events.plays (id BIGINT, event_ts TIMESTAMP, __metadata__ {METADATA_TYPE}) USING iceberg "
        "PARTITIONED BY (days(__metadata__.kafka_ingestion_ts), __metadata__.region)"
    )
    step = 86_400_000_000 // ROWS
    at = f"timestamp_micros(unix_micros(TIMESTAMP '{START.isoformat()}') + id * {step})"
    place = (
        "named_struct('topic', 'plays', 'partition', CAST(id % 4 AS INT), 'offset', id DIV 4, "
        f"'kafka_ingestion_ts', {at}, 'key', CAST(NULL AS BINARY), "
        "'headers', CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>), 'region', 'eu')"
    )
    rows = spark.sql(f"SELECT id, {at} AS event_ts, {place} AS __metadata__ FROM range(0, {ROWS * DAYS})")
    rows.writeTo("lake.events.plays").append()


if __name__ == "__main__":
    print(main())
