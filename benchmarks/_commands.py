"""Whole commands, as a person waits for them: starting Python, the JVM and Spark is a part of what is measured.

`hand_written("plain")` is the take-rate join of a day as the simplest batch job under Spark's own settings for SQL,
`hand_written("tuned")` the same with settings chosen by hand for this data, `backfill()` is `rekappa backfill` of the
streaming job. All have the same memory, the same collector and the same codec.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from benchmarks._reference import APP, END, ROWS, START, bench_home, make_archive, reference_app

BY_HAND = {
    "plain": {},
    "tuned": {
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.join.preferSortMergeJoin": "false",
        "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "512m",
    },
}
JOB = f"""
    SELECT i.impression_id, i.account_id, i.show_id, i.event_ts, p.playback_id, p.event_ts AS played_ts
    FROM lake.events.impressions i LEFT JOIN lake.events.playbacks p
      ON i.impression_id = p.impression_id
     AND p.event_ts >= i.event_ts AND p.event_ts < i.event_ts + INTERVAL 10 MINUTES
    WHERE i.event_ts >= TIMESTAMP '{START}' AND i.event_ts < TIMESTAMP '{END}'"""
BEGINS = b"run backfill_"
"""How the line begins that says that planning is over and the run goes on."""


@dataclass(frozen=True)
class Timed:
    """How long a command took; of that, how long until its work began, and the work. `rows` is what it wrote."""

    seconds: float
    begins: float
    working: float
    rows: int

    @property
    def rows_per_second(self) -> int:
        return round(ROWS * 1.1 / self.seconds)


def make() -> None:
    """The archive, made if it is not there, in a process of its own."""
    subprocess.run([sys.executable, "-m", "benchmarks._commands", "make"], check=True, stdout=subprocess.DEVNULL)


def hand_written(name: str) -> Timed:
    began = time.monotonic()
    command = [sys.executable, "-m", "benchmarks._commands", name]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds = time.monotonic() - began
    answer = json.loads(done.stdout.splitlines()[-1])
    return Timed(seconds, seconds - answer["working"], answer["working"], answer["rows"])


def backfill(*options: str) -> Timed:
    """`rekappa backfill` of the day. Its work begins when the run has been planned and recorded."""
    from rekappa.iceberg.catalog import load_table
    from rekappa.staging.tables import staging_table

    job = "plays_per_impression"
    command = [sys.executable, "-m", "rekappa.cli.main", "backfill", str(APP), "--job", job, "--start", START]
    command += ["--end", END, "--json", *options]
    home, began, begins = bench_home(), time.monotonic(), 0.0
    with subprocess.Popen(
        command, env={**os.environ, "REKAPPA_HOME": str(home.root)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        said = []
        for line in running.stderr:
            said.append(line)
            if line.startswith(BEGINS):
                begins = time.monotonic() - began
        answer = running.stdout.read()
    seconds = time.monotonic() - began
    if running.returncode or not begins:
        raise RuntimeError(f"rekappa backfill failed: {b''.join(said).decode()}")
    table = load_table(
        reference_app().config, staging_table(reference_app().config, json.loads(answer)["id"], job), home
    )
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return Timed(seconds, begins, seconds - begins, int(snapshot.summary.additional_properties["total-records"]))


def _by_hand(name: str) -> dict[str, Any]:
    """What a person would write, for the shell to run."""
    from pyspark.sql import SparkSession

    from rekappa.jvm.java import use_java
    from rekappa.replay.tuning import machine_memory, process_settings
    from rekappa.spark.session import DEFAULTS, catalog_settings
    from rekappa.spark.shipping import extra_jars, jar_settings

    use_java()
    loaded, home = reference_app(), bench_home()
    settings = {one.key: one.value for one in process_settings(machine_memory(), os.cpu_count() or 1)}
    settings |= {
        key: DEFAULTS[key] for key in ("spark.ui.enabled", "spark.sql.session.timeZone", "spark.sql.extensions")
    }
    settings |= catalog_settings("lake", loaded.config.catalogs["lake"], home)
    settings |= jar_settings(extra_jars(loaded.config, home)) | {"spark.driver.host": "127.0.0.1"} | BY_HAND[name]
    builder = SparkSession.builder.master(f"local[{os.cpu_count()}]").appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    table = f"lake.events.out_{name}"
    began = time.monotonic()
    spark.sql(f"DROP TABLE IF EXISTS {table}")
    written = spark.sql(JOB).writeTo(table).using("iceberg").tableProperty("write.parquet.compression-codec", "snappy")
    written.create()
    working = time.monotonic() - began
    snapshot = spark.sql(f"SELECT summary['total-records'] AS n FROM {table}.snapshots").first()
    return {"working": working, "rows": int(snapshot.n) if snapshot else 0}


def _made() -> dict[str, Any]:
    from rekappa.spark.session import open_session

    make_archive(open_session(reference_app().config, "backfill", bench_home()))
    return {}


if __name__ == "__main__":
    print(json.dumps(_made() if sys.argv[1] == "make" else _by_hand(sys.argv[1])))
