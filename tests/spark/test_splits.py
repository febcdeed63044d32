"""Splits from Iceberg's metadata: what is read, what is skipped, after all that may happen to a table."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from archives import DAY, START, Archive, create_archive, events, save_plan

from rekappa.config.model import AppConfig
from rekappa.errors import ConfigError, SourceError
from rekappa.home import Home
from rekappa.iceberg.catalog import load_table
from rekappa.iceberg.splits import table_splits
from rekappa.replay.ordered import run_slices
from rekappa.storage.location import Location
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR = timedelta(hours=1)


def rows_of(archive: Archive, folder: Location, reads: Window = DAY) -> list[tuple[object, ...]]:
    """All rows that a replay delivers."""
    found: dict[int, list[tuple[object, ...]]] = {}

    def write(rows: DataFrame, number: int) -> None:
        found[number] = [tuple(row) for row in rows.collect()]

    save_plan(folder / "plan", {"events": archive}, reads, bound=12 * HOUR)
    run_slices(
        archive.spark, folder / "plan", "job", {"events": archive.source()}, lambda inputs: inputs["events"], write,
        folder / "checks", close=False,
    )  # fmt: skip
    return sorted((row for rows in found.values() for row in rows), key=str)


def in_table(archive: Archive) -> list[tuple[object, ...]]:
    return sorted((tuple(row) for row in archive.spark.table(archive.name).collect()), key=str)


def test_bounds_regions_and_pruning(spark: SparkSession, bare_config: AppConfig, home: Home) -> None:
    archive = create_archive(spark, bare_config, home)
    assert archive.scan("events", DAY, HOUR).snapshot is None
    events(spark, 800).writeTo(archive.name).append()
    reads = Window(START + timedelta(minutes=90), START + 3 * HOUR)
    scan = archive.scan("events", reads, HOUR, ["eu"])
    assert scan.files == len(scan.splits) == 2
    assert scan.skipped_files == 6
    assert scan.skipped_bytes > 0
    assert {split.region for split in scan.splits} == {"eu"}
    bounds = spark.sql(
        f"SELECT min(__metadata__.kafka_ingestion_ts) AS low, max(__metadata__.kafka_ingestion_ts) AS high "
        f"FROM {archive.name} WHERE __metadata__.region = 'eu' AND hour(__metadata__.kafka_ingestion_ts) IN (1, 2)"
    ).first()
    assert bounds is not None
    assert min(split.low for split in scan.splits).replace(tzinfo=None) == bounds.low
    assert max(split.high for split in scan.splits).replace(tzinfo=None) == bounds.high
    by_time = sorted(scan.splits, key=lambda split: split.low)
    assert by_time[0].groups, "a file at the edge comes with its row groups"
    assert not by_time[1].groups
    assert by_time[1].positions is not None
    assert by_time[1].positions.high_partition == 2


def test_after_evolution_compaction_expiry_and_deletes(
    spark: SparkSession, bare_config: AppConfig, home: Home, location: Location
) -> None:
    archive = create_archive(spark, bare_config, home, "id INT, user STRING, value FLOAT, event_ts TIMESTAMP")
    table = archive.name
    first = events(spark, 60).selectExpr("int(id) AS id", "user", "float(value) AS value", "event_ts", "__metadata__")
    first.writeTo(table).append()
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN user TO account")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN id TYPE BIGINT")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN value TYPE DOUBLE")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN note STRING AFTER account")
    spark.sql(f"ALTER TABLE {table} DROP COLUMN event_ts")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN event_ts TIMESTAMP AFTER value")
    more = events(spark, 60, first=60).selectExpr(
        "id", "user AS account", "'x' AS note", "double(value) AS value", "event_ts", "__metadata__"
    )
    more.writeTo(table).append()
    evolved = rows_of(archive, location / "evolved")
    assert evolved == in_table(archive)
    assert len(evolved) == 120

    spark.sql(f"DELETE FROM {table} WHERE id % 10 = 3")
    assert any(split.deletes for split in archive.scan("events", DAY, HOUR).splits)
    deleted = rows_of(archive, location / "deleted")
    assert deleted == in_table(archive)
    assert len(deleted) == 108

    spark.sql(f"CALL lake.system.rewrite_data_files('{table}', options => map('rewrite-all', 'true'))")
    spark.sql(f"CALL lake.system.expire_snapshots('{table}', TIMESTAMP '2100-01-01 00:00:00', 1)")
    assert rows_of(archive, location / "compacted") == deleted


def test_deletion_vectors(spark: SparkSession, bare_config: AppConfig, home: Home, location: Location) -> None:
    archive = create_archive(spark, bare_config, home)
    spark.sql(f"ALTER TABLE {archive.name} SET TBLPROPERTIES ('format-version'='3')")
    events(spark, 100).writeTo(archive.name).append()
    spark.sql(f"DELETE FROM {archive.name} WHERE id IN (5, 50, 51)")
    assert rows_of(archive, location) == in_table(archive)


def test_a_table_without_metadata_or_existence_is_refused(
    spark: SparkSession, bare_config: AppConfig, home: Home
) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.replay_tests")
    spark.sql("CREATE TABLE IF NOT EXISTS lake.replay_tests.plain (id BIGINT) USING iceberg")
    plain = load_table(bare_config, "lake.replay_tests.plain", home)
    with pytest.raises(SourceError, match="kafka_ingestion_ts"):
        table_splits(plain, "events", DAY, max_misalignment=HOUR)
    with pytest.raises(SourceError, match="does not exist"):
        load_table(bare_config, "lake.replay_tests.absent", home)
    with pytest.raises(ConfigError, match="has lake"):
        load_table(bare_config, "pond.replay_tests.absent", home)
