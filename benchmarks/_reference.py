"""The reference work of the replay benchmarks: 24 hours of impressions and a tenth as many playbacks, archived.

Deterministic: made from row numbers, so that every machine and every run has the same rows.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rekappa.archive.tables import ROW_GROUP_BYTES
from rekappa.config.load import Loaded, load
from rekappa.home import Home
from rekappa.record import METADATA_TYPE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP = Path(__file__).resolve().parent.parent / "examples" / "take_rate"
START = "2026-11-01T00:00:00Z"
END = "2026-11-02T00:00:00Z"
ROWS = int(os.environ.get("REKAPPA_BENCH_ROWS", "12000000"))
DAY_MICROS = 86_400_000_000

TABLES = {
    "impressions": "impression_id BIGINT, account_id BIGINT, show_id BIGINT, event_ts TIMESTAMP",
    "playbacks": "playback_id BIGINT, impression_id BIGINT, account_id BIGINT, show_id BIGINT, event_ts TIMESTAMP",
}


def reference_app() -> Loaded:
    return load(APP)


def bench_home() -> Home:
    """Where benchmark tables are kept: made once per size, reused after."""
    root = Path(os.environ.get("REKAPPA_BENCH_HOME", Path.home() / ".cache" / "rekappa" / "bench"))
    home = Home(root / str(ROWS))
    home.root.mkdir(parents=True, exist_ok=True)
    return home


def make_archive(spark: SparkSession) -> None:
    """Fill the archive tables of the take-rate app, unless they are there."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.events")
    done = all(spark.catalog.tableExists(f"lake.events.{name}") for name in TABLES)
    if done and spark.table("lake.events.impressions").count() == ROWS:
        return
    for name, columns in TABLES.items():
        spark.sql(f"DROP TABLE IF EXISTS lake.events.{name}")
        create_archive(spark, name, columns)
    complete = {
        f"snapshot-property.rekappa.complete-until.{region}": "2026-11-03T00:00:00+00:00" for region in ("us", "eu")
    }
    for name, sql in (("impressions", _impressions()), ("playbacks", _playbacks())):
        rows = spark.sql(sql).sortWithinPartitions("__metadata__.kafka_ingestion_ts")
        rows.writeTo(f"lake.events.{name}").options(**complete).append()


def create_archive(spark: SparkSession, name: str, columns: str) -> None:
    """A table as the router makes them."""
    spark.sql(
        f"CREATE TABLE lake.events.{name} ({columns}, __metadata__ {METADATA_TYPE}) USING iceberg "
        "PARTITIONED BY (hours(__metadata__.kafka_ingestion_ts), __metadata__.region) "
        "TBLPROPERTIES ('format-version'='2', 'write.parquet.compression-codec'='zstd', "
        f"'write.parquet.row-group-size-bytes'='{ROW_GROUP_BYTES}')"
    )


def _metadata(topic: str, number: str, ingestion: str) -> str:
    return (
        f"named_struct('topic', '{topic}', 'partition', CAST({number} % 4 AS INT), 'offset', {number} DIV 4, "
        f"'kafka_ingestion_ts', {ingestion}, 'key', CAST(NULL AS BINARY), "
        "'headers', CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>), "
        f"'region', IF({number} % 3 = 0, 'eu', 'us')) AS __metadata__"
    )


def _impressions() -> str:
    happened = f"unix_micros(TIMESTAMP '{START}') + CAST(id * {DAY_MICROS / ROWS} AS BIGINT)"
    return f"""
        SELECT id AS impression_id, pmod(xxhash64(id, 1), 1000000) AS account_id, pmod(xxhash64(id, 2), 500) AS show_id,
               timestamp_micros(at) AS event_ts,
               {_metadata("impressions", "id", "timestamp_micros(at + pmod(xxhash64(id, 3), 30000000))")}
        FROM (SELECT id, {happened} AS at FROM range(0, {ROWS}))"""


def _playbacks() -> str:
    happened = f"unix_micros(TIMESTAMP '{START}') + CAST(id * 10 * {DAY_MICROS / ROWS} AS BIGINT)"
    return f"""
        SELECT id AS playback_id, id * 10 AS impression_id, pmod(xxhash64(id * 10, 1), 1000000) AS account_id,
               pmod(xxhash64(id * 10, 2), 500) AS show_id, timestamp_micros(at) AS event_ts,
               {_metadata("playbacks", "id", "timestamp_micros(at + pmod(xxhash64(id, 4), 30000000))")}
        FROM (SELECT id, {happened} + pmod(xxhash64(id, 5), 720000000) AS at FROM range(0, {ROWS // 10}))"""
