"""What bulk mode chooses before it starts, from sizes alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from rekappa.plan.chunks import whole_hours
from rekappa.replay.tuning import (
    ARROW_BYTES,
    EXPANSION,
    GB,
    MB,
    Facts,
    arrow_settings,
    bulk_settings,
    process_settings,
    unset_by,
)
from rekappa.timeline import Window

sizes = st.integers(0, 10_000 * GB)


def settings_of(size: int, cores: int = 2, memory: int = 4 * GB) -> dict[str, str]:
    return {one.key: one.value for one in bulk_settings(Facts({"events": size}, cores, memory))}


@given(sizes, st.integers(1, 64))
def test_every_core_has_a_partition_and_no_partition_is_left_over(size: int, cores: int) -> None:
    partitions = int(settings_of(size, cores)["spark.sql.shuffle.partitions"])
    assert partitions >= cores
    assert partitions % cores == 0


@given(sizes, sizes)
def test_more_bytes_never_mean_fewer_partitions(one: int, other: int) -> None:
    key = "spark.sql.shuffle.partitions"
    small, large = sorted((one, other))
    assert int(settings_of(small)[key]) <= int(settings_of(large)[key])


@given(rows=st.integers(0, 10**9), wide=st.integers(1, 10**7))
def test_a_batch_of_rows_for_python_is_never_too_large_nor_empty(rows: int, wide: int) -> None:
    found = {one.key: int(one.value) for one in arrow_settings(rows, rows * wide)}
    records = found["spark.sql.execution.arrow.maxRecordsPerBatch"]
    assert 1 <= records <= 10_000
    assert records == 1 or not rows or records * wide * EXPANSION <= ARROW_BYTES
    assert found["spark.sql.execution.arrow.maxBytesPerBatch"] == 2**31 - 1, "Spark measures no batch row by row"


@given(sizes, st.integers(1, 64), st.integers(1, 8))
def test_on_a_cluster_a_task_has_its_share_of_one_executor(size: int, executors: int, each: int) -> None:
    key = "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold"
    alone = settings_of(size, each)
    spread = {one.key: one.value for one in bulk_settings(Facts({"events": size}, executors * each, 4 * GB, each))}
    assert spread[key] == alone[key]
    assert int(spread["spark.sql.shuffle.partitions"]) % (executors * each) == 0


def test_the_profile_wins() -> None:
    chosen = bulk_settings(Facts({"events": GB}, 2, 4 * GB))
    left = unset_by(chosen, {"spark.sql.shuffle.partitions": 3})
    assert "spark.sql.shuffle.partitions" not in left
    assert left["spark.sql.join.preferSortMergeJoin"] == "false"


def test_every_setting_says_why() -> None:
    assert all(one.why for one in (*bulk_settings(Facts({}, 2, GB)), *process_settings(16 * GB, 2)))


@given(st.integers(0, 1024 * GB), st.integers(1, 128))
def test_the_heap_leaves_the_machine_alive(memory: int, cores: int) -> None:
    heap = int(process_settings(memory, cores)[0].value.removesuffix("m")) * MB
    assert GB <= heap <= 8 * GB


moments = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)).map(lambda moment: moment.replace(tzinfo=UTC))


@given(moments, st.timedeltas(timedelta(microseconds=1), timedelta(days=40)))
def test_whole_hours_cover_the_stretch_with_less_than_two_hours_more(start: datetime, length: timedelta) -> None:
    reads = Window(start, start + length)
    wide = whole_hours(reads)
    assert wide.start <= reads.start
    assert reads.end <= wide.end
    assert wide.length < reads.length + timedelta(hours=2)
    assert wide.start.minute == wide.start.microsecond == wide.end.minute == wide.end.microsecond == 0
    assert whole_hours(wide) == wide
