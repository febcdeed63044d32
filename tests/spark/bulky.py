"""A small app with a join, an aggregate and a de-duplication, and six hours of archive for it."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rekappa.config.load import Loaded, load
from rekappa.record import METADATA_TYPE
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

M = timedelta(minutes=1)
DAY = datetime(2026, 11, 1, tzinfo=UTC)
WINDOW = Window(DAY + timedelta(hours=2), DAY + timedelta(hours=4))
NUMBERS = itertools.count()

CODE = """
from pyspark.sql import DataFrame, functions as F
from rekappa import App

app = App("bulky")


@app.job(sinks=["plays", "rates"])
def both(shown: DataFrame, played: DataFrame) -> dict[str, DataFrame]:
    i = shown.withWatermark("event_ts", "5 minutes").alias("i")
    p = played.withWatermark("event_ts", "5 minutes").alias("p")
    within = F.expr("i.id = p.id AND p.event_ts BETWEEN i.event_ts AND i.event_ts + INTERVAL 10 MINUTES")
    pairs = i.join(p, within, "leftOuter").select("i.id", "i.event_ts", F.col("p.event_ts").alias("played_ts"))
    windows = pairs.groupBy(F.window("event_ts", "10 minutes"))
    rates = windows.agg(F.count("*").alias("n"), F.count("played_ts").alias("k"))
    return {"plays": pairs, "rates": rates.select(F.col("window.start").alias("at"), "n", "k")}


@app.job
def firsts(shown: DataFrame) -> DataFrame:
    return shown.withWatermark("event_ts", "5 minutes").dropDuplicatesWithinWatermark(["id"]).select("id", "event_ts")
"""
CONFIG = """
app: bulky
sources:
  shown:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {{type: kafka, topic: shown}}
      past: {{type: iceberg, table: lake.{space}.shown}}
  played:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {{type: kafka, topic: played}}
      past: {{type: iceberg, table: lake.{space}.played}}
sinks:
  plays: {{type: iceberg, table: lake.{space}.plays, event_time: event_ts}}
  rates: {{type: iceberg, table: lake.{space}.rates, event_time: at}}
  firsts: {{type: iceberg, table: lake.{space}.firsts, event_time: event_ts}}
"""


def archive_table(spark: SparkSession, table: str, select: str, complete: str | None) -> None:
    """One archive table in the router's shape. `select` names id, event_ts and late (seconds)."""
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {table.rsplit('.', 1)[0]}")
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, event_ts TIMESTAMP, __metadata__ {METADATA_TYPE}) USING iceberg "
        "PARTITIONED BY (hours(__metadata__.kafka_ingestion_ts), __metadata__.region)"
    )
    rows = spark.sql(
        f"""SELECT id, event_ts, named_struct('topic', 't', 'partition', CAST(id % 2 AS INT), 'offset', id DIV 2,
            'kafka_ingestion_ts', event_ts + make_dt_interval(0, 0, 0, late), 'key', CAST(NULL AS BINARY),
            'headers', CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>),
            'region', IF(id % 3 = 0, 'eu', 'us')) AS __metadata__ FROM ({select})"""
    )
    writer = rows.coalesce(1).sortWithinPartitions("__metadata__.kafka_ingestion_ts").writeTo(table)
    if complete:
        for region in ("eu", "us"):
            writer = writer.option(f"snapshot-property.rekappa.complete-until.{region}", complete)
    writer.append()


def make_app(spark: SparkSession, folder: Path, complete: str | None = "2026-11-01T06:00:00+00:00") -> Loaded:
    """Six hours of events, one every two seconds, up to five minutes late; every third is played."""
    space = f"bulk{next(NUMBERS)}"
    seconds = "id * 2"
    at = f"TIMESTAMP '2026-11-01T00:00:00Z' + make_dt_interval(0, 0, 0, {seconds})"
    shown = f"SELECT id, {at} AS event_ts, pmod(hash(id), 299) AS late FROM range(0, 10800)"
    later = f"{at} + make_dt_interval(0, 0, 0, pmod(hash(id, 7), 720))"
    played = f"SELECT id, {later} AS event_ts, pmod(hash(id, 9), 299) AS late FROM range(0, 10800, 3)"
    archive_table(spark, f"lake.{space}.shown", shown, complete)
    archive_table(spark, f"lake.{space}.played", played, complete)
    (folder / "app.py").write_text(CODE)
    (folder / "rekappa.yaml").write_text(CONFIG.format(space=space))
    return load(folder)
