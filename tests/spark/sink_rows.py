"""Rows of every type, and a configuration with every sink, for the contract suite and the processes it kills."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rekappa.config.model import AppConfig
from rekappa.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS = ("append", "upsert", "parquet", "kafka", "postgres", "cassandra", "opensearch")
KEYED = ("upsert", "postgres", "cassandra", "opensearch")
PURPOSES = (
    "story",
    "killed",
    "keys",
    "deletes",
    "odd",
    "published",
    "killed_publish",
    "overtaken",
    "evolved",
    "rewound",
)
ODD = {"id": "i`d `", "name": "größe 數`"}
"""Names that mean something else where they are not quoted."""
KILLED_ROWS = 2000
KILLED_CAP = 50.0


def rows(spark: SparkSession, low: int, high: int) -> DataFrame:
    """The rows [low, high): one a minute, every type, text from several scripts, nulls."""
    return spark.range(low, high, 1, 2).selectExpr(
        "id",
        "concat('née 東京 🚀 \"', id, '\\'') AS name",
        "CAST(id / 3 AS DECIMAL(12, 2)) AS amount",
        "id / 7.0D AS score",
        "CAST(id AS INT) AS small",
        "id % 2 = 0 AS even",
        "timestamp_micros(1793520000123456 + id * 60000000) AS happened",
        "date_add(DATE '2026-11-01', CAST(id % 3 AS INT)) AS day",
        "IF(id % 3 = 0, NULL, concat('n', id)) AS note",
    )


def content(frame: DataFrame | None) -> list[tuple[Any, ...]]:
    """What a DataFrame holds, in an order that depends on nothing but the rows."""
    assert frame is not None
    return sorted((tuple(row) for row in frame.select(*map(quoted, sorted(frame.columns))).collect()), key=repr)


def sinks_config(servers: dict[str, Any], *, hive: bool) -> AppConfig:
    """An app with one sink per kind and purpose."""
    specs: dict[str, dict[str, Any]] = {
        "append": {"type": "iceberg", "table": "lake.sinks.append_{}", "mode": "append"},
        "upsert": {"type": "iceberg", "table": "lake.sinks.upsert_{}", "mode": "upsert"},
        "parquet": {"type": "parquet", "path": "files/{}"},
        "kafka": {"type": "kafka", "topic": "sink-{}"},
        "postgres": {"type": "postgres", "table": "{}", **servers["postgres"]},
        "cassandra": {"type": "cassandra", "table": "{}", "keyspace": "sinks", "port": servers["cassandra"]},
        "opensearch": {"type": "opensearch", "index": "{}", "url": servers["opensearch"]},
    }
    if hive:
        specs["hive"] = {"type": "hive", "database": "sinks", "table": "{}", "partition_by": ["day"]}
    sinks = {
        f"{kind}_{purpose}": {
            **{name: value.format(purpose) if isinstance(value, str) else value for name, value in spec.items()},
            "event_time": "happened",
            "key": ["id"],
            **({"deletes": "gone"} if purpose == "deletes" else {"key": [ODD["id"]]} if purpose == "odd" else {}),
        }
        for kind, spec in specs.items()
        for purpose in PURPOSES
        if purpose not in ("deletes", "odd") or kind in KEYED
    }
    events = {
        "schema": "id BIGINT, happened TIMESTAMP",
        "event_time": "happened",
        "candidates": {"live": {"type": "kafka", "topic": "events"}},
    }
    return AppConfig.model_validate(
        {
            "app": "sinks",
            "clusters": {"main": {"bootstrap": servers["kafka"]}},
            "sources": {"events": events},
            "sinks": sinks,
            "profiles": {"live": {"master": "local[24]" if hive else "local[2]", "spark.sql.shuffle.partitions": 2}},
        }
    )
