"""Ordered and strict replay of stateful queries: closing, hold-back, late rows, alignment, Kafka's order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from archives import DAY, START, Archive, create_archive, events, save_plan

from rekappa.config.model import AppConfig
from rekappa.home import Home
from rekappa.plan.offsets import strict_slices
from rekappa.plan.plan import Mode
from rekappa.replay.ordered import HoldBack, run_slices
from rekappa.replay.positions import cut_points
from rekappa.storage.location import Location
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Inputs = Mapping[str, "DataFrame"]


class Collected:
    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[Any, ...]]] = {}

    def __call__(self, rows: DataFrame, number: int) -> None:
        self.batches[number] = [tuple(row) for row in rows.collect()]

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(row for number in sorted(self.batches) for row in self.batches[number])


@pytest.fixture(scope="module")
def archive(spark: SparkSession, bare_config: AppConfig, home: Home) -> Archive:
    made = create_archive(spark, bare_config, home)
    events(spark, 4000).writeTo(made.name).append()
    return made


def counts(inputs: Inputs) -> DataFrame:
    from pyspark.sql import functions as F

    window = F.window("event_ts", "10 minutes")
    seen = (
        inputs["events"].withWatermark("event_ts", "5 minutes").groupBy(window, "user").agg(F.sum("value").alias("s"))
    )
    return seen.select("window.start", "user", "s")


def test_windows_all_come_out_and_hold_back_keeps_the_window(archive: Archive, location: Location) -> None:
    save_plan(location / "plan", {"events": archive}, DAY, bound=timedelta(minutes=30))
    window = Window(START + timedelta(hours=1), START + timedelta(hours=5))
    sink = Collected()
    outcome = run_slices(
        archive.spark, location / "plan", "job", {"events": archive.source(["user", "value", "event_ts"])}, counts,
        sink, location / "checks", hold_back=HoldBack(window, "start"),
    )  # fmt: skip
    expected = counts({"events": archive.spark.table(archive.name)}).where(f"start >= '{window.start}'").collect()
    assert sink.rows == sorted(tuple(row) for row in expected)
    assert outcome.finished
    assert outcome.rows == 4000
    assert outcome.late_rows == 0
    assert outcome.peak_state_rows > 0
    assert outcome.watermark is not None
    assert outcome.watermark < START + timedelta(hours=4)
    again = run_slices(
        archive.spark, location / "plan", "job", {"events": archive.source()}, counts, sink, location / "checks"
    )
    assert again.finished
    assert again.watermark == outcome.watermark


def test_late_rows_are_counted(spark: SparkSession, bare_config: AppConfig, home: Home, location: Location) -> None:
    late = create_archive(spark, bare_config, home)
    events(spark, 1200, late_every=10).writeTo(late.name).append()
    save_plan(location / "plan", {"events": late}, DAY, bound=timedelta(minutes=15))
    sink = Collected()
    outcome = run_slices(spark, location / "plan", "job", {"events": late.source()}, counts, sink, location / "checks")
    assert 0 < outcome.late_rows <= 120


def test_an_outer_join_closes(archive: Archive, spark: SparkSession, location: Location) -> None:
    from pyspark.sql import functions as F

    def joined(inputs: Inputs) -> DataFrame:
        left = inputs["events"].where("id % 2 = 0").withWatermark("event_ts", "5 minutes").alias("l")
        right = inputs["others"].where("id % 4 = 1").withWatermark("event_ts", "5 minutes").alias("r")
        on = F.expr(
            "l.id + 1 = r.id AND r.event_ts BETWEEN l.event_ts - INTERVAL 2 MINUTES AND l.event_ts + INTERVAL 2 MINUTES"
        )
        return left.join(right, on, "leftOuter").select(F.col("l.id"), F.col("r.id").alias("other"))

    both = {"events": archive, "others": archive}
    save_plan(location / "plan", both, DAY, bound=timedelta(minutes=30))
    sink = Collected()
    outcome = run_slices(
        spark, location / "plan", "job", {name: one.source(["id", "event_ts"]) for name, one in both.items()},
        joined, sink, location / "checks",
    )  # fmt: skip
    table = spark.table(archive.name)
    expected = sorted(tuple(row) for row in joined({"events": table, "others": table}).collect())
    assert outcome.finished
    assert sorted(sink.rows, key=str) == sorted(expected, key=str)
    assert len(sink.rows) == 2000


def sessions(inputs: Inputs) -> DataFrame:
    """Counts a user's events until five quiet minutes have passed: custom state with event-time timers."""
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    class Sessions(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.handle = handle
            self.seen = handle.getValueState("seen", "n LONG, last LONG")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
            n, last = self.seen.get() if self.seen.exists() else (0, 0)
            for frame in rows:
                n += len(frame)
                last = max(last, int(frame["event_ts"].astype("int64").max() // 1000_000))
            for timer in list(self.handle.listTimers()):
                self.handle.deleteTimer(timer)
            self.handle.registerTimer(last + 300_000)
            self.seen.update((n, last))
            yield from ()

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
            n, _ = self.seen.get()
            self.seen.clear()
            yield pd.DataFrame({"user": [key[0]], "n": [n]})

    grouped = inputs["events"].select("user", "event_ts").withWatermark("event_ts", "1 minute").groupBy("user")
    return grouped.transformWithStateInPandas(Sessions(), "user STRING, n LONG", "append", "eventTime")


def test_timers_fire_at_the_close(archive: Archive, spark: SparkSession, location: Location) -> None:
    reads = Window(START, START + timedelta(hours=1))
    save_plan(location / "plan", {"events": archive}, reads, bound=timedelta(minutes=30))
    sink = Collected()
    outcome = run_slices(
        spark, location / "plan", "job", {"events": archive.source(["user", "event_ts"])}, sessions, sink,
        location / "checks",
    )  # fmt: skip
    assert outcome.finished
    assert sum(n for _, n in sink.rows) == 1000
    assert {user for user, _ in sink.rows} == {f"u{n}" for n in range(7)}


def test_alignment_bounds_the_state(archive: Archive, spark: SparkSession, location: Location) -> None:
    """The same join, with the sources in step and with one source read whole before the other."""
    from pyspark.sql import functions as F

    def joined(inputs: Inputs) -> DataFrame:
        busy = inputs["events"].withWatermark("event_ts", "2 minutes").alias("l")
        quiet = inputs["others"].where("id % 10 = 0").withWatermark("event_ts", "2 minutes").alias("r")
        on = F.expr(
            "l.id = r.id AND r.event_ts BETWEEN l.event_ts - INTERVAL 1 MINUTE AND l.event_ts + INTERVAL 1 MINUTE"
        )
        return busy.join(quiet, on).select("l.id")

    both = {"events": archive, "others": archive}
    aligned = save_plan(location / "aligned", both, DAY, bound=timedelta(minutes=30))
    parts = aligned.jobs[0].slices
    alone = [{name: part.sources[name]} for name in ("events", "others") for part in parts]
    from dataclasses import replace

    apart = tuple(replace(parts[at % len(parts)], number=at, sources=sources) for at, sources in enumerate(alone))
    save_plan(location / "apart", both, DAY, slices=apart)
    peaks = {}
    for name in ("aligned", "apart"):
        sink = Collected()
        outcome = run_slices(
            spark, location / name, "job", {one: archive.source(["id", "event_ts"]) for one in both}, joined, sink,
            location / f"checks-{name}",
        )  # fmt: skip
        assert sink.rows == [(n,) for n in range(0, 4000, 10)]
        peaks[name] = outcome.peak_state_rows
    assert peaks["aligned"] * 3 < peaks["apart"]


def test_strict_delivers_kafkas_order(
    spark: SparkSession, bare_config: AppConfig, home: Home, location: Location
) -> None:
    """Timestamps that go back within a partition (as producers' may) do not change the order of delivery."""
    made = create_archive(spark, bare_config, home)
    shuffled = events(spark, 3000, hours=2).selectExpr(
        "id", "user", "value", "event_ts",
        "named_struct('topic', __metadata__.topic, 'partition', __metadata__.partition, "
        "'offset', __metadata__.offset, 'kafka_ingestion_ts', __metadata__.kafka_ingestion_ts - "
        "make_interval(0, 0, 0, 0, 0, CAST(__metadata__.offset * 37 % 11 AS INT), 0), 'key', __metadata__.key, "
        "'headers', __metadata__.headers, 'region', __metadata__.region) AS __metadata__",
    )  # fmt: skip
    shuffled.writeTo(made.name).append()
    reads = Window(START - timedelta(hours=1), START + timedelta(hours=3))
    scan = made.scan("events", reads, timedelta(minutes=15))
    points = cut_points(made.table, scan.splits, reads)
    slices = strict_slices(points, scan.splits, reads=reads, max_rows=500, max_span=timedelta(minutes=15))
    assert len(slices) > 5
    save_plan(location / "plan", {"events": made}, reads, slices=slices, mode=Mode.STRICT)

    def arrivals(inputs: Inputs) -> DataFrame:
        def numbered(frames: Iterable[Any]) -> Iterable[Any]:
            at = 0
            for frame in frames:
                frame["at"] = range(at, at + len(frame))
                at += len(frame)
                yield frame

        flat = inputs["events"].selectExpr(
            "__metadata__.region AS region", "__metadata__.partition AS p", "__metadata__.offset AS o"
        )
        return flat.mapInPandas(numbered, "region STRING, p INT, o BIGINT, at BIGINT")

    sink = Collected()
    run_slices(
        spark, location / "plan", "job", {"events": made.source(["__metadata__"])}, arrivals, sink,
        location / "checks", close=False,
    )  # fmt: skip
    delivered: dict[tuple[str, int], list[int]] = {}
    for number in sorted(sink.batches):
        for region, partition, offset, _ in sorted(sink.batches[number], key=lambda row: (row[0], row[1], row[3])):
            delivered.setdefault((region, partition), []).append(offset)
    assert len(delivered) == 6
    assert all(offsets == list(range(500)) for offsets in delivered.values())


def test_a_closing_watermark_can_be_chosen(archive: Archive, location: Location) -> None:
    save_plan(location / "plan", {"events": archive}, DAY, bound=timedelta(hours=2))
    sink = Collected()
    until: datetime = START + timedelta(hours=4)
    run_slices(
        archive.spark, location / "plan", "job", {"events": archive.source()}, counts, sink, location / "checks",
        closing_watermark=until,
    )  # fmt: skip
    assert max(row[0] for row in sink.rows) == (until - timedelta(minutes=10)).replace(tzinfo=None)


def test_a_run_that_ended_before_it_was_closed_is_closed_when_it_goes_on(archive: Archive, location: Location) -> None:
    """As one that was killed right after its last slice: the state is loaded again, and all of it comes out."""
    save_plan(location / "plan", {"events": archive}, DAY, bound=timedelta(hours=1))
    sink = Collected()
    for close in (False, True):
        outcome = run_slices(
            archive.spark, location / "plan", "job", {"events": archive.source()}, counts, sink, location / "checks",
            close=close,
        )  # fmt: skip
        assert outcome.finished
    expected = counts({"events": archive.spark.table(archive.name)}).collect()
    assert sink.rows == sorted(tuple(row) for row in expected)
    assert outcome.rows == 4000
