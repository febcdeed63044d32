"""Staging: where a backfill writes, whatever its production sink is.

One Iceberg table per run and sink, in the namespace `rekappa_staging` of the app's first catalog. It is not
partitioned: it holds one window, is read whole, and so costs no shuffle to write. The staging of a sink that upserts
holds every version of a key, each with the number of its batch (`rekappa.staging.versions`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.iceberg.commits import load_table
from rekappa.sinks.iceberg import IcebergAppend
from rekappa.sinks.rate import rate_limited
from rekappa.staging.versions import StagedVersions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rekappa.config.model import AppConfig

NAMESPACE = "rekappa_staging"
QUICK = {"write.parquet.compression-codec": "snappy"}
"""Staging is written once, read twice and dropped: time counts for more than space."""


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def staging_table(config: AppConfig, run: str, sink: str) -> str:
    """The run's staging table for one sink: lake.rekappa_staging.RUN__SINK."""
    return f"{config.default_catalog()}.{NAMESPACE}.{_plain(run)}__{_plain(sink)}"


def before_table(config: AppConfig, run: str, sink: str) -> str:
    """Where publishing keeps the rows that it replaced, for sinks that keep no history of their own."""
    return f"{staging_table(config, run, sink)}__before"


def _marks(config: AppConfig, run: str, sink: str, kind: str) -> dict[str, str]:
    return {"rekappa.app": config.app, "rekappa.run": run, "rekappa.sink": sink, "rekappa.kind": kind}


def staging_sink(
    config: AppConfig, run: str, sink_name: str, run_cap: float | None = None, *, ordered: bool = True
) -> IcebergAppend:
    """The sink that a backfill writes to instead of the production sink of this name.

    Only the run's own cap holds here: the production sink's is for its server, which staging does not touch.
    `ordered` says that the batches of the run are written in the order in which production would have had them.
    """
    spec = config.sinks[sink_name]
    sink = (StagedVersions if spec.upserts else IcebergAppend)(
        sink_name,
        staging_table(config, run, sink_name),
        key=spec.key if spec.upserts else (),
        event_time=spec.event_time,
        version=spec.version,
        partition_by=(),
        properties={**_marks(config, run, sink_name, "staging"), **QUICK},
    )
    if isinstance(sink, StagedVersions):
        sink.ordered = ordered
    return rate_limited(sink, run_cap=run_cap)


def before_sink(config: AppConfig, run: str, sink_name: str) -> IcebergAppend:
    """The sink that publishing copies replaced rows to."""
    return IcebergAppend(
        sink_name,
        before_table(config, run, sink_name),
        event_time=config.sinks[sink_name].event_time,
        partition_by=(),
        properties=_marks(config, run, sink_name, "before"),
    )


@dataclass(frozen=True, slots=True)
class StagingTable:
    """One table in staging: whose it is, when it was last written, how much it holds."""

    table: str
    app: str
    run: str
    sink: str
    kind: str
    written: datetime
    rows: int
    bytes: int

    def expired(self, retention: timedelta, now: datetime) -> bool:
        return now - self.written >= retention


def list_staging(spark: SparkSession, config: AppConfig) -> list[StagingTable]:
    """Everything in staging, oldest first."""
    namespace = f"{config.default_catalog()}.{NAMESPACE}"
    if not spark.catalog.databaseExists(namespace):
        return []
    found = []
    for row in spark.sql(f"SHOW TABLES IN {namespace}").collect():
        name = f"{namespace}.{row.tableName}"
        table = load_table(spark, name)
        properties = table.properties()
        snapshot = table.currentSnapshot()
        millis = snapshot.timestampMillis() if snapshot else table.operations().current().lastUpdatedMillis()
        summary = snapshot.summary() if snapshot else {}
        found.append(
            StagingTable(
                name,
                app=properties.get("rekappa.app") or "",
                run=properties.get("rekappa.run") or "",
                sink=properties.get("rekappa.sink") or "",
                kind=properties.get("rekappa.kind") or "",
                written=datetime.fromtimestamp(millis / 1000, UTC),
                rows=int(summary.get("total-records") or 0),
                bytes=int(summary.get("total-files-size") or 0),
            )
        )
    return sorted(found, key=lambda one: one.written)


def drop_staging(spark: SparkSession, table: StagingTable) -> None:
    """Drop one staging table with its files."""
    spark.sql(f"DROP TABLE IF EXISTS {table.table} PURGE")
