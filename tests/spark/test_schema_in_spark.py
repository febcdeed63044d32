"""Our reading of schemas is Spark's own: the same types from DDL and from Avro."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from rekappa.config.model import Source
from rekappa.config.schema import avro_schema
from rekappa.sources.decode import payload_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = (
    "id BIGINT, small SMALLINT, ok BOOLEAN, f FLOAT, d DOUBLE, day DATE, ts TIMESTAMP, local TIMESTAMP_NTZ, "
    "name STRING, raw BINARY, price DECIMAL(12, 2), tags ARRAY<STRING>, counts MAP<STRING, BIGINT>, "
    "place STRUCT<x: DOUBLE, inner: STRUCT<`y`: INT>>, many ARRAY<STRUCT<k: STRING>>"
)
RECORD = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": ["null", "string"]}}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A"]}},
        {"name": "place", "type": {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "float"}]}},
        {"name": "back", "type": ["Place", "null"]},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 8}},
        {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}


def source(schema: object) -> Source:
    candidates = {"live": {"type": "kafka", "topic": "t"}}
    return Source.model_validate({"schema": schema, "event_time": "id", "format": "avro", "candidates": candidates})


def test_ddl_means_to_spark_what_it_means_to_us(spark: SparkSession, tmp_path: Path) -> None:
    assert payload_type(source(DDL), tmp_path) == spark.createDataFrame([], DDL).schema


def test_an_avro_file_has_the_columns_that_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql.avro.functions import from_avro

    (tmp_path / "order.avsc").write_text(json.dumps(RECORD))
    order = source({"file": "order.avsc"})
    read = spark.createDataFrame([], "value BINARY").select(from_avro("value", avro_schema(order, tmp_path)).alias("e"))
    ours = payload_type(order, tmp_path)
    assert read.select("e.*").schema.simpleString() == ours.simpleString()
