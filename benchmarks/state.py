"""Peak state of ordered replay against that of a live run: the take-rate join over two hours, at the same lateness.

The live run is one from Kafka: the archive's events of these hours are sent to a broker of its own, in the order in
which they came in, and every micro-batch takes a minute of them. Wider slices hold more than that: a slice's own rows
come on top of what the watermark keeps.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._reference import APP, ROWS, START, TABLES, bench_home, make_archive, reference_app
from benchmarks._replay import replay
from rekappa.config.bind import load_app
from rekappa.config.load import load
from rekappa.home import Home
from rekappa.produce.topics import create_topics
from rekappa.record import INGESTION
from rekappa.replay.tuning import machine_memory, process_settings
from rekappa.runs.live import run_live
from rekappa.runs.queries import QueryProgress
from rekappa.spark.session import open_session
from rekappa.spark.times import within
from rekappa.stack.broker import down, up
from rekappa.timeline import Window, parse_instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPANS = (5, 15, 60)
SHORT = Window(parse_instant(START), parse_instant(START) + timedelta(hours=2))
JOB = "plays_per_impression"
A_MINUTE = {"impressions": ROWS // (24 * 60), "playbacks": ROWS // (24 * 60) // 10}


def main() -> dict[str, Any]:
    """Peak state rows by span of the slices, and what they are of the live run's."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.state"], check=True, stdout=subprocess.PIPE, text=True)
    live = json.loads(done.stdout.splitlines()[-1])
    print(f"   live: {live}", flush=True)
    loaded, home = reference_app(), bench_home()
    spark = _session()
    peaks: dict[int, int] = {}
    for span in SPANS:
        spark.sql("DROP TABLE IF EXISTS lake.events.out_state")
        with tempfile.TemporaryDirectory() as folder:
            outcome = replay(spark, loaded, home, "lake.events.out_state", Path(folder), span=span, reads=SHORT)
        peaks[span] = outcome.peak_state_rows
        print(f"   {span} min: {peaks[span]:,} rows", flush=True)
    spark.stop()
    return {
        "live_rows": live["peak_state_rows"],
        "live_batches": live["batches"],
        "slices": {
            f"{span} min": {
                "peak_state_rows": peaks[span],
                "to_live": round(peaks[span] / live["peak_state_rows"], 2),
            }
            for span in SPANS
        },
    }


def _session() -> SparkSession:
    settings = {one.key: one.value for one in process_settings(machine_memory(), os.cpu_count() or 1)}
    spark = open_session(reference_app().config, "backfill", bench_home(), **settings)
    make_archive(spark)
    return spark


def _live() -> dict[str, int]:
    """The live run: its peak state, and how many micro-batches it had."""
    spark = _session()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "live")
        root.mkdir()
        code, _, _ = (APP / "app.py").read_text().partition("\n\n@app.job\ndef take_rate")
        (root / "app.py").write_text(code)
        (root / "rekappa.yaml").write_text(json.dumps(_config()))
        home = Home(root / ".rekappa").made()
        try:
            _send(spark, up(home).bootstrap)
            spark.stop()
            seen: list[QueryProgress] = []
            loaded = load(root)
            run_live(loaded, load_app(loaded), home, available_now=True, on_progress=seen.extend)
        finally:
            down(home)
    return {"peak_state_rows": max(one.state_rows for one in seen), "batches": seen[-1].batch + 1}


def _config() -> dict[str, Any]:
    return {
        "app": "take_rate",
        "sources": {
            name: {
                "schema": columns,
                "event_time": "event_ts",
                "candidates": {"live": {"type": "kafka", "topic": name, "max_records_per_batch": A_MINUTE[name]}},
            }
            for name, columns in TABLES.items()
        },
        "sinks": {JOB: {"type": "iceberg", "table": "lake.live.plays"}},
        "profiles": {"live": {"spark.sql.shuffle.partitions": 2}},
    }


def _send(spark: SparkSession, bootstrap: str) -> None:
    from pyspark.sql import functions as F

    create_topics(bootstrap, tuple(TABLES), partitions=1)
    for name in TABLES:
        rows = spark.table(f"lake.events.{name}").where(within(F.col(INGESTION), SHORT)).coalesce(1).sort(INGESTION)
        payload = [column for column in rows.columns if not column.startswith("__")]
        messages = rows.select(F.to_json(F.struct(*payload)).alias("value"))
        options = {"kafka.bootstrap.servers": bootstrap, "topic": name}
        messages.coalesce(1).write.format("kafka").options(**options).save()


if __name__ == "__main__":
    print(json.dumps(_live()))
