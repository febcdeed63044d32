"""What a sink writes to, in one line: to tell whether two configurations mean the same place."""

from __future__ import annotations

from rekappa.config.model import (
    CassandraSink,
    HiveSink,
    IcebergSink,
    KafkaSink,
    OpenSearchSink,
    ParquetSink,
    PostgresSink,
    Sink,
)


def target_of(sink: Sink) -> str:
    """The table, topic, index or folder; a word for a sink that has no place. Holds no secret."""
    match sink:
        case IcebergSink():
            return sink.table
        case HiveSink():
            return f"{sink.database}.{sink.table}"
        case PostgresSink():
            return f"postgres {sink.host}:{sink.port}/{sink.database}/{sink.table}"
        case CassandraSink():
            return f"cassandra {','.join(sink.hosts)}/{sink.keyspace}.{sink.table}"
        case OpenSearchSink():
            return f"opensearch {sink.url.rsplit('@', 1)[-1].partition('?')[0].rstrip('/')}/{sink.index}"
        case KafkaSink():
            return f"kafka {sink.cluster}/{sink.topic}"
        case ParquetSink():
            return f"parquet {sink.path}"
        case _:
            return sink.type
