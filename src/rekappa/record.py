"""The one shape of an event: payload columns, then `__metadata__`.

Whatever source an event comes from, the job sees the same columns, types and nullability
(everything is nullable). `__metadata__` holds where Kafka had it.
"""

from __future__ import annotations

METADATA = "__metadata__"
METADATA_FIELDS: tuple[tuple[str, str], ...] = (
    ("topic", "STRING"),
    ("partition", "INT"),
    ("offset", "BIGINT"),
    ("kafka_ingestion_ts", "TIMESTAMP"),
    ("key", "BINARY"),
    ("headers", "ARRAY<STRUCT<key: STRING, value: BINARY>>"),
    ("region", "STRING"),
)
METADATA_TYPE = "STRUCT<" + ", ".join(f"{name}: {kind}" for name, kind in METADATA_FIELDS) + ">"

INGESTION = f"{METADATA}.kafka_ingestion_ts"
REGION = f"{METADATA}.region"
TOPIC = f"{METADATA}.topic"
PARTITION = f"{METADATA}.partition"
OFFSET = f"{METADATA}.offset"
HEADERS = f"{METADATA}.headers"
