"""Sharing slices out among tasks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from rekappa.plan.model import OffsetRange, SourceSlice, Split
from rekappa.replay.tasks import SMALLEST_TASK, share_out
from rekappa.timeline import Window

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def split(path: str, size: int, **more: object) -> Split:
    return Split("plays", path, size // 100, size, NOON, NOON, **{"region": "eu", **more})  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 8 * SMALLEST_TASK), max_size=30), st.integers(1, 8))
def test_every_split_goes_to_one_task(sizes: list[int], tasks: int) -> None:
    part = SourceSlice(tuple(split(f"f{at}", size) for at, size in enumerate(sizes)))
    shared = share_out(part, tasks)
    assert len(shared) <= tasks
    assert sorted(piece.path for task in shared for piece in task.pieces) == sorted(one.path for one in part.splits)


def test_a_large_file_is_divided_by_row_group() -> None:
    part = SourceSlice((split("big", 40 * SMALLEST_TASK), split("small", 100)))
    shared = share_out(part, 2, row_groups=lambda path: [10, 10, 10, 10])
    groups = sorted(group for task in shared for piece in task.pieces for group in piece.row_groups or ())
    assert len(shared) == 2
    assert groups == [0, 1, 2, 3]


def test_little_is_one_task() -> None:
    part = SourceSlice((split("a", 1000), split("b", 1000)))
    assert len(share_out(part, 8)) == 1


def test_a_kafka_partition_stays_in_one_task() -> None:
    ranges = tuple(OffsetRange("eu", "plays", partition, 0, 100_000 * partition) for partition in range(6))
    shared = share_out(SourceSlice((split("a", 90 * SMALLEST_TASK),), ranges), 3)
    assert len(shared) == 3
    assert sorted(one.partition for task in shared for one in task.offsets) == [1, 2, 3, 4, 5]
    assert all([piece.path for piece in task.pieces] == ["a"] for task in shared)


def test_cut_regions_and_deletes_reach_the_piece() -> None:
    cut = Window(NOON, NOON + timedelta(seconds=1))
    part = SourceSlice((split("a", 10, region="", cut=cut, deletes=True, row_groups=(3,)),))
    (piece,) = share_out(part, 1, regions=["eu"], deleted=lambda path: b"x")[0].pieces
    assert (piece.regions, piece.deleted, piece.row_groups) == (("eu",), b"x", (3,))
    assert piece.cut is not None
    assert piece.cut[1] - piece.cut[0] == 1_000_000
