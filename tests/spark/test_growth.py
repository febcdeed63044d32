"""Nothing grows without end: snapshots, metadata files, archive hours; and what they said lasts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest
from archiving import START, Archive, event
from project import wait_until

from rekappa.archive.compact import compact
from rekappa.archive.completeness import complete_until
from rekappa.archive.expire import cut_at, drop, look
from rekappa.archive.router import Router
from rekappa.home import Home
from rekappa.iceberg import upkeep
from rekappa.iceberg.catalog import load_table
from rekappa.iceberg.commits import load_table as java_table
from rekappa.iceberg.retention import AGE
from rekappa.iceberg.upkeep import expire
from rekappa.sinks.contract import BatchId
from rekappa.sinks.iceberg import IcebergAppend
from rekappa.spark.offsetlog import last_committed
from rekappa.store.runs import RunStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEPT = 1 + int(upkeep.FEW_METADATA_FILES["write.metadata.previous-versions-max"])
"""Metadata files: the current one and those before it."""


@pytest.fixture
def archive(spark: SparkSession, home: Home, broker: str, tmp_path: Path) -> Archive:
    return Archive(spark, home, broker, tmp_path)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upkeep after every commit instead of once an hour."""
    monkeypatch.setattr(upkeep, "BETWEEN", timedelta())


def short_lived(spark: SparkSession, table: str) -> None:
    """As a person would: snapshots of this table last a millisecond."""
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{AGE}' = '1')")


def snapshots(spark: SparkSession, table: str) -> list[int]:
    return [int(one.snapshotId()) for one in java_table(spark, table).snapshots()]


def files(spark: SparkSession, table: str, ending: str) -> int:
    folder = unquote(java_table(spark, table).location().removeprefix("file:"))
    return len(list(Path(folder).rglob(f"*{ending}")))


def test_a_live_sink_levels_off_and_still_writes_each_batch_once(spark: SparkSession, at_once: None) -> None:
    table, pins = "lake.growth.live", set[int]()

    def opened() -> IcebergAppend:
        return IcebergAppend("out", table, partition_by=(), pins=lambda: pins)

    def write(sink: IcebergAppend, number: int) -> None:
        sink.write(spark.range(number, number + 1, 1, 1), BatchId("live_1", "out", number))

    sink = opened()
    sink.prepare(spark, spark.range(1).schema)
    short_lived(spark, table)
    write(sink, 0)
    pins |= set(snapshots(spark, table))
    for number in range(1, KEPT + 4):
        write(sink, number)
    assert len(snapshots(spark, table)) <= 3
    assert pins < set(snapshots(spark, table))
    assert files(spark, table, ".metadata.json") <= KEPT
    lists = files(spark, table, ".avro")
    for number in range(KEPT + 4, KEPT + 8):
        write(sink, number)
    assert files(spark, table, ".avro") <= lists + 4, "a manifest for each batch, no list of them"
    # Somebody else's commit is the newest, and of the run's own snapshots none is left: the table knows its last batch.
    spark.sql(f"DELETE FROM {table} WHERE id = 0")
    pins.clear()
    expire(spark, table, pins, now=datetime.now(UTC) + timedelta(days=1))
    assert len(snapshots(spark, table)) == 1
    write(opened(), KEPT + 7)
    assert spark.table(table).count() == KEPT + 7
    write(opened(), KEPT + 8)
    assert spark.table(table).count() == KEPT + 8


def test_staging_keeps_few_metadata_files_and_all_its_snapshots(spark: SparkSession) -> None:
    staged = IcebergAppend("out", "lake.growth.staged", partition_by=())
    staged.prepare(spark, spark.range(1).schema)
    told = dict(java_table(spark, "lake.growth.staged").properties())
    assert upkeep.FEW_METADATA_FILES.items() <= told.items()
    assert AGE not in told


def test_a_table_that_says_nothing_keeps_its_snapshots(spark: SparkSession, at_once: None) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.growth")
    spark.sql("CREATE TABLE lake.growth.theirs (id BIGINT) USING iceberg")
    sink = IcebergAppend("out", "lake.growth.theirs", pins=frozenset)
    for number in range(3):
        sink.write(spark.range(1), BatchId("live_1", "out", number))
    assert len(snapshots(spark, "lake.growth.theirs")) == 3


def test_the_router_idle_busy_and_after_its_snapshots_are_gone(
    archive: Archive, spark: SparkSession, at_once: None
) -> None:
    route, table = archive.route, archive.route.table

    def complete() -> datetime:
        return complete_until(load_table(archive.loaded.config, table, archive.home))["local"]

    archive.send([event(number) for number in range(20)])
    archive.route_all()
    made = snapshots(spark, table)
    with RunStore.open(archive.home).claim([f"archive table {table}"], "archive") as claim:
        idle = Router(spark, archive.loaded, archive.home, route, claim)
        idle.start(available_now=True)
        wait_until(lambda: not idle.active, "the router has caught up")
        for _ in range(KEPT + 5):
            idle.mark()
        before = datetime.now(UTC)
        idle.mark()
        idle.stop()
    assert snapshots(spark, table) == made, "an idle router makes no snapshot"
    assert files(spark, table, ".metadata.json") <= KEPT
    assert complete() >= before

    short_lived(spark, table)
    for batch in range(1, 4):
        archive.send([event(20 * batch + number) for number in range(20)])
        archive.route_all()
        assert len(snapshots(spark, table)) <= 2
    said = complete()
    # Compacted, and everything of the router's own is gone: it still knows its last batch, whose it is, how complete.
    compact(spark, route, timedelta(hours=1))
    expire(spark, table, (), now=datetime.now(UTC) + timedelta(days=1))
    assert len(snapshots(spark, table)) == 1
    in_use = spark.table(f"{table}.files").count()
    assert files(spark, table, ".parquet") == in_use, "what compaction replaced went with the last that named it"
    assert complete() == said
    folder = route.checkpoint(archive.home)
    last = last_committed(folder)
    for name in (f"{last}", f".{last}.crc"):
        (folder / "commits" / name).remove()
    archive.route_all()
    archive.assert_sound(80)
    assert last_committed(folder) == last, "it went on where it was"


def test_old_hours_go_on_purpose_and_are_not_missed(archive: Archive, spark: SparkSession) -> None:
    route = archive.route
    # In partition 0 what is old and what is not take turns, as with clocks of several producers.
    archive.send([event(number) for number in range(30)] + [b"nope"])
    archive.send([event(number) for number in range(30, 40)], START + timedelta(hours=3))
    archive.send([event(number) for number in range(40, 50)])
    archive.send([event(number) for number in range(50, 60)], START + timedelta(hours=3))
    archive.route_all()
    cut = cut_at(timedelta(hours=1), START + timedelta(hours=3, minutes=20))
    assert cut == START + timedelta(hours=2)
    seen = look(spark, route, cut)
    assert (seen.rows, seen.dead_letters, seen.oldest) == (40, 1, START)
    drop(spark, route, cut, ())
    assert sorted(row["id"] for row in archive.rows()) == [*range(30, 40), *range(50, 60)]
    assert (look(spark, route, cut).files, look(spark, route, cut).dead_letters) == (0, 0)
    archive.assert_sound(10)  # below what was dropped, nothing is looked at
    route.checkpoint(archive.home).remove()
    archive.send([event(60)])
    archive.route_all()
    assert len(archive.rows()) == 21, "what was dropped is not fetched again"
    archive.assert_sound(11)
