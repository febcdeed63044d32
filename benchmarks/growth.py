"""What is left on disk by a router and a live run while nothing comes, and by a live sink that is written all the time.

Time is simulated: the router notes completeness once a minute, here one note after the other (REKAPPA_BENCH_NOTES of
them; a week has 10,080); the idle live run looks for events a hundred times as often as it would, for
REKAPPA_BENCH_IDLE seconds, and what it does every minute beside is done for each minute of a week; the busy sink's
snapshots last as long as the first quarter of its commits took (REKAPPA_BENCH_BATCHES of them). Files and bytes on disk
are counted in quarters of the way.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rekappa.archive.router import Router
from rekappa.archive.tables import routes
from rekappa.config.bind import load_app
from rekappa.config.load import Loaded, load
from rekappa.home import Home
from rekappa.iceberg import upkeep
from rekappa.iceberg.retention import AGE
from rekappa.sinks.contract import BatchId
from rekappa.sinks.iceberg import IcebergAppend
from rekappa.spark.session import open_session
from rekappa.stack.broker import down, up
from rekappa.store.record import Run
from rekappa.store.runs import RunStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTES = int(os.environ.get("REKAPPA_BENCH_NOTES", "10080"))
BATCHES = int(os.environ.get("REKAPPA_BENCH_BATCHES", "800"))
WARM = 50
"""Commits of the busy sink that are not counted: the first ones take longer."""
IDLE_SECONDS = float(os.environ.get("REKAPPA_BENCH_IDLE", "40"))
WEEK = 7 * 24 * 60
"""Its minutes."""
CONFIG = """
app: growth
sources:
  plays:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {type: kafka, topic: plays}
      past: {type: iceberg, table: lake.growth.plays}
sinks:
  counted: {type: iceberg, table: lake.growth.counted, event_time: start}
profiles:
  live: {trigger: 100 ms}
"""
APP = '''
from pyspark.sql import functions as F
from rekappa import App

app = App("growth")


@app.job
def counted(plays):
    """Plays in ten minutes."""
    timed = plays.withWatermark("event_ts", "10 minutes").groupBy(F.window("event_ts", "10 minutes").alias("w"))
    return timed.count().select(F.col("w.start").alias("start"), "count")
'''


def main() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "growth")
        root.mkdir()
        (root / "app.py").write_text(APP)
        (root / "rekappa.yaml").write_text(CONFIG)
        home, loaded = Home(root / ".rekappa").made(), load(root)
        try:
            _produce(up(home).bootstrap)
            spark = open_session(loaded.config, "archive", home)
            found = {"idle_router": _idle_router(spark, loaded, home), "busy_sink": _busy(spark, home)}
            spark.stop()
            found["idle_live"], run = _idle_live(loaded, home)
            return {**found, "idle_live_seconds": IDLE_SECONDS, "idle_week": _idle_week(home, run)}
        finally:
            down(home)


def _quarters(folder: Callable[[], list[Path]], step: Callable[[int], None], times: int) -> dict[str, dict[str, int]]:
    """Do it so many times; files and bytes at the start and after each quarter."""
    found = {"0": _sizes(folder())}
    for number in range(times):
        step(number)
        if (number + 1) % (times // 4) == 0:
            found[str(number + 1)] = _sizes(folder())
    return found


def _sizes(folders: list[Path]) -> dict[str, int]:
    """Of files on disk: one that has several names counts once."""
    seen = {}
    for folder in folders:
        for path, _, names in os.walk(folder):
            for name in names:
                try:
                    told = os.stat(os.path.join(path, name))
                except FileNotFoundError:
                    continue
                seen[told.st_ino] = told.st_size
    return {"files": len(seen), "bytes": sum(seen.values())}


def _idle_router(spark: SparkSession, loaded: Loaded, home: Home) -> dict[str, dict[str, int]]:
    (route,) = routes(loaded)
    with RunStore.open(home).claim([f"archive table {route.table}"], "archive") as claim:
        router = Router(spark, loaded, home, route, claim)
        router.start(available_now=True)
        while router.active:
            time.sleep(0.1)
        kept = [home.warehouse, home.root / "checkpoints"]
        found = _quarters(lambda: kept, lambda _: router.mark(), NOTES)
        router.stop()
    return found


def _busy(spark: SparkSession, home: Home) -> dict[str, dict[str, int]]:
    """Metadata alone: data files are the result itself, and stay."""
    table = "lake.growth.busy"
    sinks: list[IcebergAppend] = []

    def start() -> None:
        sinks.append(IcebergAppend("out", table, partition_by=(), pins=frozenset))
        sinks[-1].prepare(spark, spark.range(1).schema)

    def write(number: int) -> None:
        sinks[-1].write(spark.range(number, number + 1, 1, 1), BatchId("live_1", "out", number))

    start()
    for number in range(WARM):
        write(number)
    began = time.monotonic()

    def step(number: int) -> None:
        write(WARM + number)
        if number + 1 == BATCHES // 4:
            age = time.monotonic() - began
            spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{AGE}' = '{int(age * 1000)}')")
            upkeep.BETWEEN = timedelta(seconds=age / 10)
            # As a run that was started again: the first one would look for old snapshots an hour after its start.
            start()

    kept = list(home.warehouse.glob("**/busy/metadata"))
    return _quarters(lambda: kept, step, BATCHES)


def _idle_live(loaded: Loaded, home: Home) -> tuple[dict[str, dict[str, int]], Run]:
    """Of the whole project folder but the broker's and the archive, a quarter of the time after the other."""
    from rekappa.runs.live import run_live

    found: dict[str, dict[str, int]] = {}
    begun = threading.Event()
    kept = _of_a_live_run(home)

    def watch() -> None:
        for quarter in range(5):
            found[f"{quarter}/4"] = _sizes(kept)
            time.sleep(IDLE_SECONDS / 4)
        os.kill(os.getpid(), signal.SIGTERM)

    def begin(now: Any) -> None:
        # Once it has read what there is and goes on without anything to do.
        if any(one.batch >= 0 for one in now) and not begun.is_set():
            begun.set()
            threading.Timer(IDLE_SECONDS / 4, watch).start()

    return found, run_live(loaded, load_app(loaded), home, on_progress=begin)


def _of_a_live_run(home: Home) -> list[Path]:
    own = [home.warehouse / "growth" / "counted", home.root / "checkpoints", home.root / "savepoints", home.logs]
    return [*own, *home.root.glob("runs.db*")]


def _idle_week(home: Home, run: Run) -> dict[str, dict[str, int]]:
    """What an idle run does every minute, with a clock that goes from minute to minute."""
    from rekappa.checkpoints.savepoints import keep_points

    began = datetime.now(UTC)

    def minute(number: int) -> None:
        keep_points(home, run.app, run.id, ["counted"], began + timedelta(minutes=number))

    return _quarters(lambda: _of_a_live_run(home), minute, WEEK)


def _produce(bootstrap: str) -> None:
    import json

    from confluent_kafka import Producer

    from rekappa.produce.topics import create_topics

    create_topics(bootstrap, ["plays"], 2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(1000):
        event = {"id": number, "event_ts": f"2026-11-01T{number // 60 % 24:02d}:{number % 60:02d}:00Z"}
        producer.produce("plays", json.dumps(event).encode())
    assert producer.flush(60) == 0


if __name__ == "__main__":
    print(main())
