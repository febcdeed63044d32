"""`applyInPandasWithState`, live and replayed in order: state is kept across batches, and no batch is lost.

PySpark's side of it breaks, or silently drops what a batch gave, with pandas or PyArrow newer than it knows.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from confluent_kafka import Producer
from project import Project

from rekappa.archive.router import run_routers
from rekappa.config.bind import load_app
from rekappa.home import Home
from rekappa.plan.plan import Mode
from rekappa.planning.request import BackfillRequest
from rekappa.produce.topics import create_topics
from rekappa.runs.backfill import run_backfill
from rekappa.staging.tables import staging_table
from rekappa.store.record import State
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 11, 1, tzinfo=UTC)
CODE = """
import pandas as pd
from pyspark.sql.streaming.state import GroupStateTimeout
from rekappa import App

app = App("APP")

def number(key, frames, state):
    seen = state.get[0] if state.exists else 0
    for frame in frames:
        frame = frame.sort_values("id")
        frame["nth"] = range(seen + 1, seen + 1 + len(frame))
        seen += len(frame)
        yield frame[["id", "user", "nth", "event_ts"]]
    state.update((seen,))

@app.job
def numbered(events):
    users = events.select("id", "user", "event_ts").withWatermark("event_ts", "1 minute").groupBy("user")
    schema = "id BIGINT, user STRING, nth BIGINT, event_ts TIMESTAMP"
    return users.applyInPandasWithState(number, schema, "seen BIGINT", "append", GroupStateTimeout.NoTimeout)
"""
CONFIG = """
app: {app}
sources:
  events:
    schema: id BIGINT, user STRING, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {{type: kafka, topic: {app}, max_records_per_batch: 40}}
      past: {{type: iceberg, table: lake.pandas_state.events_{app}}}
sinks:
  numbered: {{type: iceberg, table: lake.pandas_state.numbered_{app}, event_time: event_ts}}
profiles:
  live: {{spark.sql.shuffle.partitions: 2}}
  backfill: {{spark.sql.shuffle.partitions: 2}}
"""


def test_live_and_replayed_in_order(spark: SparkSession, home: Home, broker: str, tmp_path: Path) -> None:
    name = f"p{uuid4().hex[:8]}"
    project = Project.make(tmp_path / name, home, broker, CODE.replace("APP", name), CONFIG.format(app=name))
    create_topics(broker, [name])
    producer = Producer({"bootstrap.servers": broker})
    for number in range(120):
        moment = START + timedelta(minutes=number)
        value = json.dumps({"id": number, "user": f"u{number % 3}", "event_ts": moment.isoformat()})
        producer.produce(name, value.encode(), partition=0, timestamp=int(moment.timestamp() * 1000))
    assert producer.flush(60) == 0
    expected = Counter((number, f"u{number % 3}", number // 3 + 1) for number in range(120))

    def rows(table: str) -> Counter[tuple[int, str, int]]:
        return Counter((row.id, row.user, row.nth) for row in spark.table(table).collect())

    project.live()
    assert rows(f"lake.pandas_state.numbered_{name}") == expected

    loaded = project.loaded
    run_routers(spark, loaded, home, available_now=True)
    window = Window(START, START + timedelta(hours=2))
    request = BackfillRequest(
        window, mode=Mode.ORDERED, allow_incomplete=True, warm_up=timedelta(), slice_span=timedelta(minutes=20)
    )
    run = run_backfill(spark, loaded, load_app(loaded), home, request)
    assert run.state is State.FINISHED
    assert run.progress["jobs"][0]["total"] > 1, "state has to live longer than a slice"
    assert rows(staging_table(loaded.config, run.id, "numbered")) == expected
