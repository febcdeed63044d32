"""The replay source: every row of the stretch once, one slice per micro-batch, in the record's shape."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from archives import DAY, START, Archive, create_archive, events, save_plan

from rekappa.config.model import AppConfig
from rekappa.errors import RunError, SourceError
from rekappa.home import Home
from rekappa.iceberg.files import local_path
from rekappa.plan.store import PlanFile
from rekappa.replay.ordered import Signal, SliceOutcome, SliceProgress, run_slices
from rekappa.storage.location import Location
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def archive(spark: SparkSession, bare_config: AppConfig, home: Home) -> Archive:
    made = create_archive(spark, bare_config, home)
    events(spark, 4000).writeTo(made.name).append()
    return made


class Collected:
    """A sink in memory: the rows of each batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[Any, ...]]] = {}

    def __call__(self, rows: DataFrame, number: int) -> None:
        self.batches[number] = [tuple(row) for row in rows.collect()]

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return [row for number in sorted(self.batches) for row in self.batches[number]]


def replay(archive: Archive, plan: Location, folder: Location, sink: Collected, **options: Any) -> SliceOutcome:
    return run_slices(
        archive.spark, plan, "job", {"events": archive.source()}, lambda inputs: inputs["events"], sink,
        folder / "checkpoint", close=False, **options,
    )  # fmt: skip


def test_reads_exactly_the_stretch_in_slices(archive: Archive, location: Location) -> None:
    reads = Window(START + timedelta(minutes=20), START + timedelta(hours=2, minutes=50))
    plan = save_plan(location / "plan", {"events": archive}, reads, bound=timedelta(minutes=15))
    sink = Collected()
    outcome = replay(archive, location / "plan", location, sink)

    expected = archive.spark.table(archive.name).where(
        f"__metadata__.kafka_ingestion_ts >= '{reads.start}' AND __metadata__.kafka_ingestion_ts < '{reads.end}'"
    )
    assert sorted(sink.rows) == sorted(tuple(row) for row in expected.collect())
    assert outcome.finished
    assert outcome.rows == len(sink.rows)
    assert list(sink.batches) == list(range(len(plan.jobs[0].slices)))
    assert len(sink.batches) == 10
    newest_so_far = None
    for rows in sink.batches.values():
        times = [row[-1].kafka_ingestion_ts for row in rows]
        assert newest_so_far is None or newest_so_far - min(times) <= timedelta(minutes=15)
        newest_so_far = max(times)


def test_region_and_columns(archive: Archive, location: Location) -> None:
    save_plan(location / "plan", {"events": archive}, DAY, regions=["eu"], bound=timedelta(hours=1))
    sink = Collected()
    sources = {"events": archive.source(["id", "__metadata__.region", "__metadata__.offset"])}
    run_slices(
        archive.spark, location / "plan", "job", sources,
        lambda inputs: inputs["events"].select("id", "__metadata__", "user"), sink, location / "a b", close=False,
    )  # fmt: skip
    assert sorted(row[0] for row in sink.rows) == list(range(0, 4000, 2))
    metadata = sink.rows[0][1]
    assert (metadata.region, metadata.topic) == ("eu", None)
    assert metadata.offset == sink.rows[0][0] // 6
    assert {row[2] for row in sink.rows} == {None}


def test_the_schema_is_the_records_whatever_is_read(archive: Archive, location: Location) -> None:
    from rekappa.replay.stream import replay_stream
    from rekappa.replay.values import ArchiveSource

    save_plan(location / "plan", {"events": archive}, DAY)
    plan = PlanFile(location / "plan")
    schema = archive.spark.table(archive.name).schema
    for columns in ([], ["id"], ["__metadata__.offset"], ["user", "__metadata__"]):
        stream = replay_stream(archive.spark, plan, "job", "events", ArchiveSource(archive.name, schema, columns))
        assert stream.schema == schema


def test_stops_between_slices_and_resumes(archive: Archive, location: Location) -> None:
    save_plan(location / "plan", {"events": archive}, DAY, bound=timedelta(minutes=30))
    sink = Collected()
    looks = iter([Signal.GO, Signal.PAUSE, Signal.PAUSE, Signal.GO, Signal.STOP])
    seen: list[SliceProgress] = []
    first = replay(archive, location / "plan", location, sink, control=lambda: next(looks), on_progress=seen.append)
    assert not first.finished
    assert first.slices == 2
    assert any(progress.paused for progress in seen)
    second = replay(archive, location / "plan", location, sink)
    assert second.finished
    assert second.rows == 4000
    assert sorted(row[0] for row in sink.rows) == list(range(4000))


def test_a_missing_file_is_named_and_the_run_can_be_resumed(
    spark: SparkSession, bare_config: AppConfig, home: Home, location: Location
) -> None:
    archive = create_archive(spark, bare_config, home)
    events(spark, 400, hours=3).writeTo(archive.name).append()
    plan = save_plan(location / "plan", {"events": archive}, DAY, bound=timedelta(hours=1))
    broken = plan.jobs[0].slices[1].sources["events"].splits[0].path
    file = Path(local_path(broken) or "")
    content = file.read_bytes()
    sink = Collected()
    for damage in (file.unlink, lambda: file.write_bytes(b"PAR1" + content[4:200] + b"PAR1")):
        damage()
        with pytest.raises(SourceError, match="slice 1") as caught:
            replay(archive, location / "plan", location, sink, retries=0)
        assert broken in str(caught.value)
        assert caught.value.hint
    file.write_bytes(content)
    assert replay(archive, location / "plan", location, sink).finished
    assert sorted(row[0] for row in sink.rows) == list(range(400))


def test_a_failing_write_is_tried_again_then_named(archive: Archive, location: Location) -> None:
    save_plan(location / "plan", {"events": archive}, DAY, bound=timedelta(hours=1))
    tries: list[int] = []

    class Failing(Collected):
        def __call__(self, rows: DataFrame, number: int) -> None:
            tries.append(number)
            if number == 1:
                raise OSError("disk full")
            super().__call__(rows, number)

    with pytest.raises(RunError, match=r"slice 1 of 4.*disk full"):
        replay(archive, location / "plan", location, Failing(), retries=2)
    assert tries == [0, 1, 1, 1]


@pytest.mark.parametrize("reader", ["Spark's", "Iceberg's"])
def test_both_readers_cut_files_that_hold_more_than_is_wanted(
    spark: SparkSession, bare_config: AppConfig, home: Home, location: Location, reader: str
) -> None:
    """One file of two regions and four hours; a column was added since. One renamed since is for Iceberg's reader."""
    archive = create_archive(spark, bare_config, home)
    for field in ("kafka_ingestion_ts_hour", "region"):
        spark.sql(f"ALTER TABLE {archive.name} DROP PARTITION FIELD `__metadata__.{field}`")
    events(spark, 2000).coalesce(1).writeTo(archive.name).append()
    spark.sql(f"ALTER TABLE {archive.name} ADD COLUMN note STRING AFTER user")
    if reader == "Iceberg's":
        spark.sql(f"ALTER TABLE {archive.name} RENAME COLUMN value TO points")
    reads = Window(START + timedelta(minutes=50), START + timedelta(hours=2, minutes=10))
    save_plan(location / "plan", {"events": archive}, reads, regions=["us"], bound=timedelta(minutes=30))
    assert archive.scan("events", reads, timedelta(minutes=30)).files == 1
    sink = Collected()
    outcome = replay(archive, location / "plan", location, sink)
    wanted = archive.spark.table(archive.name).where(
        f"__metadata__.kafka_ingestion_ts >= '{reads.start}' AND __metadata__.kafka_ingestion_ts < '{reads.end}' "
        "AND __metadata__.region = 'us'"
    )
    assert sorted(sink.rows, key=str) == sorted((tuple(row) for row in wanted.collect()), key=str)
    assert outcome.rows == len(sink.rows) > 300
