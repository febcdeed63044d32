"""From `rekappa.yaml` to a sink one can write to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekappa.config import model
from rekappa.errors import ConfigError
from rekappa.sinks.rate import rate_limited
from rekappa.store.pins import pins_of

if TYPE_CHECKING:
    from rekappa.config.model import AppConfig
    from rekappa.home import Home
    from rekappa.sinks.contract import Sink
    from rekappa.sinks.service import Service


def open_sink(name: str, config: AppConfig, home: Home, run_cap: float | None = None) -> Sink:
    """The production sink of this name. Opening touches nothing; call `prepare` before the first write.

    `run_cap` is the run's own `max_rows_per_second` (its profile's), which all its sinks share. A relative path
    of files is below the project folder (the one that holds `.rekappa`).
    """
    if name not in config.sinks:
        raise ConfigError(
            f"Cannot open sink {name!r}: the app has {', '.join(config.sinks)}", hint="Name one of the app's sinks."
        )
    return rate_limited(_open(name, config, home), config.sinks[name].max_rows_per_second, run_cap)


def _open(name: str, config: AppConfig, home: Home) -> Sink:
    spec = config.sinks[name]
    match spec:
        case model.NullSink():
            from rekappa.sinks.plain import NullSink

            return NullSink(name, spec.event_time)
        case model.ConsoleSink():
            from rekappa.sinks.plain import ConsoleSink

            return ConsoleSink(name, spec.rows, spec.event_time)
        case model.ParquetSink():
            from rekappa.sinks.parquet import ParquetSink

            return ParquetSink(name, home.address(spec.path), spec.event_time)
        case model.IcebergSink():
            from rekappa.sinks.iceberg import IcebergAppend, IcebergUpsert

            kind = IcebergUpsert if spec.mode == "upsert" else IcebergAppend
            return kind(
                name,
                spec.table,
                key=spec.key,
                event_time=spec.event_time,
                version=spec.version,
                deletes=spec.deletes,
                partition_by=spec.partition_by,
                pins=pins_of(home),
            )
        case model.KafkaSink():
            from rekappa.sinks.kafka import KafkaSink
            from rekappa.sources.kafka import cluster_options

            options = cluster_options(config, spec.cluster, home)
            return KafkaSink(name, spec.topic, options, home.storage / "sinks" / name, spec.key, spec.event_time)
        case model.HiveSink():
            from rekappa.sinks.hive import HiveSink

            return HiveSink(name, spec.database, spec.table, spec.partition_by, spec.key, spec.event_time)
        case _:
            from rekappa.sinks.service import ServiceSink

            return ServiceSink(name, _service(spec), spec.key, spec.event_time, spec.version, spec.deletes)


def _service(spec: model.PostgresSink | model.CassandraSink | model.OpenSearchSink) -> Service:
    password = spec.password.get_secret_value() if spec.password else None
    match spec:
        case model.PostgresSink():
            from rekappa.sinks.postgres import Postgres

            return Postgres(
                spec.host, spec.port, spec.database, spec.table, spec.key, spec.event_time, spec.user, password,
                spec.version,
            )  # fmt: skip
        case model.CassandraSink():
            from rekappa.sinks.cassandra import Cassandra

            return Cassandra(
                spec.hosts, spec.port, spec.keyspace, spec.table, spec.key, spec.event_time, spec.user, password
            )
        case model.OpenSearchSink():
            from rekappa.sinks.opensearch import OpenSearch

            return OpenSearch(spec.url, spec.index, spec.key, spec.event_time, spec.user, password)
