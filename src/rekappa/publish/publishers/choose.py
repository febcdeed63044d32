"""Which publisher takes a sink: the one place that tells kinds of sinks apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekappa.errors import PublishError
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.history import current_id
from rekappa.iceberg.selection import OfKeys
from rekappa.publish.publishers.adding import AddingPublisher
from rekappa.publish.publishers.contract import Part, Publisher
from rekappa.publish.publishers.hive import HivePublisher
from rekappa.publish.publishers.keyed import KeyedPublisher
from rekappa.publish.publishers.table import TablePublisher
from rekappa.sinks.contract import Rerun
from rekappa.sinks.hive import HiveSink
from rekappa.sinks.iceberg import IcebergSink
from rekappa.sinks.kafka import KafkaSink
from rekappa.sinks.parquet import ParquetSink
from rekappa.sinks.service import ServiceSink
from rekappa.staging.baseline import Baseline
from rekappa.staging.staged import Staged, StagedSink, keyed_only, span_of
from rekappa.staging.tables import before_sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def publisher_of(spark: SparkSession, staged: Staged, one: StagedSink) -> Publisher:
    """The sink's way to publish; refuses one that takes no window back."""
    part = _part(spark, staged, one)
    kind = staged.loaded.config.sinks[one.name].type
    match one.sink:
        case IcebergSink() as sink:
            upsert = sink.rerun is Rerun.IDEMPOTENT
            by_key = upsert and keyed_only(spark, one)
            chosen = OfKeys(sink.key, part.keys) if by_key else span_of(spark, staged, one)
            return TablePublisher(part, sink.table, chosen, sink.key, unique=upsert, nowhere_else=upsert and not by_key)
        case ServiceSink() as sink:
            return KeyedPublisher(part, kind, sink)
        case HiveSink() as sink:
            return HivePublisher(part, kind, sink)
        case ParquetSink() as sink:
            return AddingPublisher(part, kind, sink, sink)
        case KafkaSink() as sink:
            return AddingPublisher(part, kind, sink)
        case _:
            raise PublishError(
                f"Cannot publish sink {one.name!r}: a {kind} sink takes no window back",
                hint=f"Its rows are in {one.table}: take them from there.",
            )


def _part(spark: SparkSession, staged: Staged, one: StagedSink) -> Part:
    noted = staged.run.spec.get("baseline")
    snapshots = Baseline.from_json(noted).snapshots if noted else {}
    return Part(
        spark=spark,
        sink=one.name,
        run=staged.run.id,
        window=staged.window,
        regions=tuple(staged.run.spec.get("regions") or ()),
        rows=one.rows(spark),
        keys=one.keys(spark),
        staging=current_id(load_table(spark, one.table)),
        baseline=snapshots.get(one.name),
        known=one.name in snapshots,
        before=lambda run: before_sink(staged.loaded.config, run, one.name),
    )
