"""A lookup as of each event's time against the same join with the table of today: a day of events, in bulk.

100,000 keys with ten versions each, spread over the day. Both contenders are whole backfills of a streaming job,
planning included (which looks whether the versions are sound), each in a process of its own, in turns; Spark's start is
not counted. `join` is the same pair without rekappa around it: the two joins alone, into nothing.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._reference import DAY_MICROS, END, ROWS, START, bench_home, make_archive, reference_app

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS, VERSIONS = int(os.environ.get("REKAPPA_BENCH_KEYS", "100000")), 10
ROUNDS = int(os.environ.get("REKAPPA_BENCH_ROUNDS", "3"))
CONTENDERS = ("today", "as_of")
OWN = f"lake.lookups.v{KEYS}"
CODE = """
from pyspark.sql import SparkSession, functions as F
from rekappa import App

app = App("bench_lookups")

@app.job
def as_of(impressions, accounts):
    return accounts.join(keyed(impressions), at="event_ts")

@app.job
def today(impressions):
    now = SparkSession.getActiveSession().table("OWN_today")
    return keyed(impressions).join(now, "account", "left").select("impression_id", "account", "event_ts", "tier", "fee")

def keyed(rows):
    return rows.select("impression_id", (F.col("account_id") % KEYS).alias("account"), "event_ts")
"""
CONFIG = """
app: bench_lookups
sources:
  impressions:
    schema: impression_id BIGINT, account_id BIGINT, show_id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {type: kafka, topic: impressions}
      past: {type: iceberg, table: lake.events.impressions}
lookups:
  accounts: {type: iceberg, table: OWN, key: account, valid_from: since}
sinks:
  as_of: {type: iceberg, table: lake.lookups.as_of, event_time: event_ts}
  today: {type: iceberg, table: lake.lookups.today, event_time: event_ts}
"""


def main() -> dict[str, Any]:
    """Seconds of both, as backfills and as joins alone, and their ratios."""
    _child("make")
    seconds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    alone: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    matched: dict[str, int] = {}
    for number in range(ROUNDS):
        for name in CONTENDERS if number % 2 == 0 else reversed(CONTENDERS):
            answer = _child(name)
            seconds[name].append(answer["seconds"])
            alone[name].append(answer["join"])
            matched[name] = answer["rows"]
            print(f"   {name}: {answer}", flush=True)
    if len(set(matched.values())) != 1:
        raise RuntimeError(f"The contenders disagree: {matched}")
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    joins = {name: statistics.median(values) for name, values in alone.items()}
    return {
        "rows": ROWS,
        "keys": KEYS,
        "versions": KEYS * VERSIONS,
        "seconds": seconds,
        "join_seconds": alone,
        "as_of_to_today": round(middle["as_of"] / middle["today"], 3),
        "join_as_of_to_today": round(joins["as_of"] / joins["today"], 3),
        "events_per_second": round(ROWS / middle["as_of"]),
    }


def _child(name: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.lookups", name], check=True, stdout=subprocess.PIPE, text=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _make(spark: SparkSession) -> None:
    """The versions of the day: the first of every key before it begins, the others at moments of their own."""
    make_archive(spark)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.lookups")
    spark.sql(f"DROP TABLE IF EXISTS {OWN}")
    spark.sql(f"DROP TABLE IF EXISTS {OWN}_today")
    moment = (
        f"unix_micros(TIMESTAMP '{START}') + IF(version = 0, -1, (version - 1) * {DAY_MICROS // (VERSIONS - 1)}"
        f" + pmod(xxhash64(account), {DAY_MICROS // (VERSIONS - 1)}))"
    )
    spark.sql(
        f"CREATE TABLE {OWN} USING iceberg AS SELECT account, concat('tier ', version) AS tier, "
        f"CAST(account * 10 + version AS DOUBLE) AS fee, timestamp_micros({moment}) AS since "
        f"FROM (SELECT id DIV {VERSIONS} AS account, id % {VERSIONS} AS version FROM range(0, {KEYS * VERSIONS}))"
    )
    spark.sql(
        f"CREATE TABLE {OWN}_today USING iceberg AS SELECT account, max_by(tier, since) AS tier, "
        f"max_by(fee, since) AS fee FROM {OWN} GROUP BY account"
    )


def _backfill(name: str, folder: Path) -> dict[str, Any]:
    from rekappa.config.bind import load_app
    from rekappa.config.load import load
    from rekappa.planning.make import BackfillRequest
    from rekappa.runs.backfill import run_backfill
    from rekappa.runs.session import backfill_session
    from rekappa.staging.tables import staging_table
    from rekappa.timeline import Window

    (folder / "app.py").write_text(CODE.replace("OWN", OWN).replace("KEYS", str(KEYS)))
    (folder / "rekappa.yaml").write_text(CONFIG.replace("OWN", OWN))
    loaded, home = load(folder), bench_home()
    app = load_app(loaded)
    spark = backfill_session(loaded, home)
    for table in ("lake.events.impressions", OWN, f"{OWN}_today"):
        spark.table(table).limit(1).collect()
    joined = _alone(spark, app.jobs[name].body)
    request = BackfillRequest(Window.parse(START, END), jobs=(name,), allow_incomplete=True)
    began = time.monotonic()
    run = run_backfill(spark, loaded, app, home, request)
    seconds = time.monotonic() - began
    rows = spark.table(staging_table(loaded.config, run.id, name)).where("tier IS NOT NULL").count()
    return {"seconds": round(seconds, 2), "rows": rows, "join": round(joined, 2)}


def _alone(spark: SparkSession, body: Any) -> float:
    from rekappa import Lookup

    def results() -> DataFrame:
        events = spark.table("lake.events.impressions")
        if body.__name__ == "today":
            return body(events)  # type: ignore[no-any-return]
        return body(events, Lookup.of(spark.table(OWN), "account", "since"))  # type: ignore[no-any-return]

    began = time.monotonic()
    results().write.format("noop").mode("overwrite").save()
    return time.monotonic() - began


def _contend(name: str) -> dict[str, Any]:
    from rekappa.spark.session import open_session

    if name == "make":
        _make(open_session(reference_app().config, "backfill", bench_home(), **{"spark.driver.memory": "4g"}))
        return {}
    with tempfile.TemporaryDirectory() as folder:
        return _backfill(name, Path(folder))


if __name__ == "__main__":
    print(json.dumps(_contend(sys.argv[1])))
