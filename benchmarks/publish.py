"""Publishing one hour into a table that grows: 10, 100 and 1000 hours.

The hour is shifted by half an hour against the table's files, so that files at both edges are rewritten. What
must not grow with the table: the files touched, and the time. Each size has a table of its own, partitioned by
hour as sinks are; every hour holds the same number of rows.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._reference import reference_app

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOURS = (10, 100, 1000)
ROWS_PER_HOUR = int(os.environ.get("REKAPPA_BENCH_ROWS_PER_HOUR", "20000"))
ROUNDS = int(os.environ.get("REKAPPA_BENCH_ROUNDS", "3"))
START = datetime(2026, 9, 1, tzinfo=UTC)


def main() -> dict[str, Any]:
    """Seconds and files by hours in the table, and how both grow from the smallest to the largest."""
    from rekappa.home import Home
    from rekappa.spark.session import open_session

    with tempfile.TemporaryDirectory() as folder:
        spark = open_session(reference_app().config, "backfill", Home(Path(folder)))
        tables = {hours: _table(spark, hours) for hours in HOURS}
        _publish(spark, _table(spark, 3), 1, "warm")
        results: dict[int, dict[str, Any]] = {hours: {"seconds": [], "undo_seconds": []} for hours in HOURS}
        for number in range(ROUNDS):
            for hours in HOURS if number % 2 == 0 else reversed(HOURS):
                # Each round takes an hour of its own, all in the middle of the table.
                measured = _publish(spark, tables[hours], hours // 2 + 2 * number - ROUNDS, f"r{number}")
                results[hours]["seconds"].append(measured.pop("seconds"))
                results[hours]["undo_seconds"].append(measured.pop("undo_seconds"))
                results[hours] |= measured
                print(f"   {hours} hours: {results[hours]}", flush=True)
        spark.stop()
    small, large = (statistics.median(results[hours]["seconds"]) for hours in (HOURS[0], HOURS[-1]))
    back, back_large = (statistics.median(results[hours]["undo_seconds"]) for hours in (HOURS[0], HOURS[-1]))
    return {
        "rows_per_hour": ROWS_PER_HOUR,
        "hours": {str(hours): result for hours, result in results.items()},
        "time_1000_to_10_hours": round(large / small, 2),
        "undo_1000_to_10_hours": round(back_large / back, 2),
        "files_1000_to_10_hours": round(_touched(results[HOURS[-1]]) / _touched(results[HOURS[0]]), 2),
    }


def _touched(result: dict[str, Any]) -> int:
    return int(result["files_dropped"] + result["files_rewritten"])


def _rows(spark: SparkSession, first: float, hours: float, v: str) -> DataFrame:
    base = int(START.timestamp() * 1_000_000) + int(first * 3_600_000_000)
    step = 3_600_000_000 // ROWS_PER_HOUR
    count = int(hours * ROWS_PER_HOUR)
    return spark.range(0, count, 1, 2).selectExpr(
        f"id + {int(first * ROWS_PER_HOUR)} AS id", f"'{v}' AS v", f"timestamp_micros({base} + id * {step}) AS at"
    )


def _table(spark: SparkSession, hours: int) -> str:
    name = f"lake.bench_publish.h{hours}"
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench_publish")
    spark.sql(f"CREATE TABLE {name} (id BIGINT, v STRING, at TIMESTAMP) USING iceberg PARTITIONED BY (hours(at))")
    for first in range(0, hours, 10):
        _rows(spark, first, min(10, hours - first), "old").writeTo(name).append()
    return name


def _publish(spark: SparkSession, table: str, hour: int, run: str) -> dict[str, Any]:
    from rekappa.iceberg.commits import load_table
    from rekappa.iceberg.history import PUBLISH, UNDO, current_id, tag_before
    from rekappa.iceberg.past import rows_at
    from rekappa.iceberg.replace import Edit, replace_rows
    from rekappa.iceberg.selection import InWindow
    from rekappa.timeline import Window

    start = START + timedelta(hours=hour, minutes=30)
    chosen = InWindow("at", Window(start, start + timedelta(hours=1)))
    began = time.monotonic()
    edit = Edit(run, {PUBLISH: run}, since=current_id(load_table(spark, table)), tag=tag_before(run))
    done = replace_rows(spark, table, chosen, _rows(spark, hour + 0.5, 1, "new"), edit)
    published = time.monotonic()
    before = chosen.of(rows_at(spark, table, tag_before(run)))
    replace_rows(spark, table, chosen, before, Edit(run, {UNDO: run}, since=done.snapshot))
    return {
        "seconds": round(published - began, 2),
        "undo_seconds": round(time.monotonic() - published, 2),
        "files_dropped": done.dropped,
        "files_rewritten": done.rewritten,
        "files_added": done.added,
        "rows_in_rewritten_files": done.rewritten_rows,
    }
