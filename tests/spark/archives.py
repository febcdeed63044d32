"""Archive tables and plans for replay tests: written with plain Spark, so that they depend on nothing of ours."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.config.model import AppConfig
from rekappa.home import Home
from rekappa.iceberg.catalog import load_table
from rekappa.iceberg.splits import SplitScan, table_splits
from rekappa.plan.model import Slice
from rekappa.plan.ordered import plan_slices
from rekappa.plan.plan import JobPlan, Mode, Plan, SourcePlan
from rekappa.plan.store import save
from rekappa.record import METADATA_TYPE
from rekappa.replay.ordered import ArchiveSource
from rekappa.storage.location import Location
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = datetime(2026, 11, 1, tzinfo=UTC)
DAY = Window(START, START + timedelta(days=1))
PAYLOAD = "id BIGINT, user STRING, value BIGINT, event_ts TIMESTAMP"


@dataclass(frozen=True)
class Archive:
    """One archive table and what is needed to replay it."""

    spark: SparkSession
    config: AppConfig
    home: Home
    name: str

    def scan(self, source: str, reads: Window, bound: timedelta, regions: Sequence[str] = ()) -> SplitScan:
        return table_splits(self.table, source, reads, regions, max_misalignment=bound)

    @property
    def table(self):  # type: ignore[no-untyped-def]
        return load_table(self.config, self.name, self.home)

    def source(self, columns: Sequence[str] = ()) -> ArchiveSource:
        return ArchiveSource(self.name, self.spark.table(self.name).schema, columns)


def create_archive(spark: SparkSession, config: AppConfig, home: Home, payload: str = PAYLOAD) -> Archive:
    name = f"lake.replay_tests.t{uuid.uuid4().hex[:10]}"
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.replay_tests")
    spark.sql(
        f"CREATE TABLE {name} ({payload}, __metadata__ {METADATA_TYPE}) USING iceberg "
        "PARTITIONED BY (hours(__metadata__.kafka_ingestion_ts), __metadata__.region) "
        "TBLPROPERTIES ('write.distribution-mode'='hash', 'write.merge.mode'='merge-on-read', "
        "'write.delete.mode'='merge-on-read', 'format-version'='2')"
    )
    return Archive(spark, config, home, name)


def events(
    spark: SparkSession, count: int, *, hours: float = 4, first: int = 0, late_every: int = 0, partitions: int = 3
) -> DataFrame:
    """`count` events spread evenly over some hours, of two regions and seven users.

    Event time is up to a minute before ingestion time; every `late_every`-th is half an hour before it.
    """
    step = int(hours * 3600e6 / count)
    base = int(START.timestamp() * 1_000_000)
    late = f"IF(id % {late_every} = 0, 1800000000, 0)" if late_every else "0"
    return spark.sql(
        f"""
        SELECT id, concat('u', id % 7) AS user, id % 100 AS value,
          timestamp_micros({base} + (id - {first}) * {step} - id * 7919 % 60000000 - {late}) AS event_ts,
          named_struct('topic', 'events', 'partition', CAST(id DIV 2 % {partitions} AS INT),
            'offset', id DIV (2 * {partitions}),
            'kafka_ingestion_ts', timestamp_micros({base} + (id - {first}) * {step}),
            'key', CAST(id AS STRING) , 'headers', CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>),
            'region', IF(id % 2 = 0, 'eu', 'us')) AS __metadata__
        FROM range({first}, {first + count})
        """.replace("CAST(id AS STRING) ,", "CAST(CAST(id AS STRING) AS BINARY),")
    )


def save_plan(
    path: Location,
    archives: Mapping[str, Archive],
    reads: Window,
    *,
    bound: timedelta = timedelta(minutes=30),
    regions: Sequence[str] = (),
    slices: tuple[Slice, ...] | None = None,
    mode: Mode = Mode.ORDERED,
    **options: object,
) -> Plan:
    """Scan, plan and save; slices may be given instead of planned."""
    scans = {name: archive.scan(name, reads, bound, regions) for name, archive in archives.items()}
    if slices is None:
        splits = [split for scan in scans.values() for split in scan.splits]
        slices = plan_slices(splits, max_misalignment=bound, reads=reads, regions=regions, **options)  # type: ignore[arg-type]
    sources = tuple(
        SourcePlan(name, archives[name].name, scan.snapshot, (), bound, scan.files, scan.rows, scan.bytes)
        for name, scan in scans.items()
    )
    zero = timedelta()
    job = JobPlan("job", ("out",), mode, "test", zero, "", zero, "", reads, sources, slices)
    plan = Plan("bare", reads, tuple(regions), (job,))
    save(plan, path)
    return plan
