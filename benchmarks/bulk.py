"""Bulk mode against hand-written Spark batch jobs: the take-rate join of a day, into the same kind of table.

`plain` is the simplest batch job under Spark's default settings, `tuned` the same job with settings chosen by
hand for this data, `bulk` is `rekappa backfill` of the streaming job, planning included. Each runs in a process
of its own, in turns; Spark's start is not counted, and every contender first reads one row of each table.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks._reference import END, ROWS, START, bench_home, make_archive, reference_app

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = int(os.environ.get("REKAPPA_BENCH_ROUNDS", "3"))
CONTENDERS = ("plain", "tuned", "bulk")
# The session's own defaults are ours (up to 8 GB of memory, for one): the plain job gets Spark's back.
SPARK_DEFAULTS = {"spark.sql.shuffle.partitions": "200", "spark.driver.memory": "1g"}
BY_HAND = {
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.join.preferSortMergeJoin": "false",
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "512m",
    "spark.driver.memory": "4g",
}
JOB = f"""
    SELECT i.impression_id, i.account_id, i.show_id, i.event_ts, p.playback_id, p.event_ts AS played_ts
    FROM lake.events.impressions i LEFT JOIN lake.events.playbacks p
      ON i.impression_id = p.impression_id
     AND p.event_ts >= i.event_ts AND p.event_ts < i.event_ts + INTERVAL 10 MINUTES
    WHERE i.event_ts >= TIMESTAMP '{START}' AND i.event_ts < TIMESTAMP '{END}'"""


def main() -> dict[str, Any]:
    """Seconds of every contender and the ratios that matter."""
    _child("make")
    seconds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    counts: dict[str, int] = {}
    for number in range(ROUNDS):
        # Turns go back and forth, so that a machine that slows down slows all of them.
        for name in CONTENDERS if number % 2 == 0 else reversed(CONTENDERS):
            answer = _child(name)
            seconds[name].append(answer["seconds"])
            counts[name] = answer["rows"]
            print(f"   {name}: {answer['seconds']:.1f} s, {answer['rows']:,} rows", flush=True)
    if len(set(counts.values())) != 1:
        raise RuntimeError(f"The contenders disagree: {counts}")
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "rows": ROWS,
        "output_rows": counts["plain"],
        "seconds": {name: [round(value, 2) for value in values] for name, values in seconds.items()},
        "bulk_to_plain": round(middle["bulk"] / middle["plain"], 3),
        "bulk_to_tuned": round(middle["bulk"] / middle["tuned"], 3),
        "bulk_rows_per_second": round(ROWS * 1.1 / middle["bulk"]),
    }


def _child(name: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bulk", name], check=True, stdout=subprocess.PIPE, text=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _contend(name: str) -> dict[str, Any]:
    from rekappa.spark.session import open_session

    loaded, home = reference_app(), bench_home()
    if name == "bulk":
        return _bulk(loaded, home)
    settings = {"plain": SPARK_DEFAULTS, "tuned": BY_HAND, "make": {"spark.driver.memory": "4g"}}[name]
    spark = open_session(loaded.config, "backfill", home, **settings)
    make_archive(spark)
    if name == "make":
        return {}
    _warm(spark)
    return _hand_written(spark, f"lake.events.out_{name}")


def _warm(spark: SparkSession) -> None:
    for table in ("impressions", "playbacks"):
        spark.table(f"lake.events.{table}").limit(1).collect()


def _hand_written(spark: SparkSession, table: str) -> dict[str, Any]:
    spark.sql(f"DROP TABLE IF EXISTS {table}")
    began = time.monotonic()
    spark.sql(JOB).writeTo(table).using("iceberg").create()
    seconds = time.monotonic() - began
    return {"seconds": seconds, "rows": spark.table(table).count()}


def _bulk(loaded: Any, home: Any) -> dict[str, Any]:
    from rekappa.config.bind import load_app
    from rekappa.planning.make import BackfillRequest
    from rekappa.runs.backfill import backfill_session, run_backfill
    from rekappa.staging.tables import staging_table
    from rekappa.timeline import Window

    app = load_app(loaded)
    spark = backfill_session(loaded, home)
    _warm(spark)
    request = BackfillRequest(Window.parse(START, END), jobs=("plays_per_impression",), allow_incomplete=True)
    began = time.monotonic()
    run = run_backfill(spark, loaded, app, home, request)
    seconds = time.monotonic() - began
    return {
        "seconds": seconds,
        "rows": spark.table(staging_table(loaded.config, run.id, "plays_per_impression")).count(),
    }


if __name__ == "__main__":
    print(json.dumps(_contend(sys.argv[1])))
