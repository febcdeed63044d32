"""The promise of ordered slices, over records in generated files."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekappa.errors import PlanError
from rekappa.plan.cut import pieces
from rekappa.plan.model import RowGroup, Slice, SourceSlice, Split
from rekappa.plan.ordered import FEWEST, GOOD_BYTES, GOOD_ROWS, plan_slices, wide_span
from rekappa.timeline import Window

T0 = datetime(2026, 11, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
Files = dict[str, list[list[datetime]]]
"""What the lake holds: per path the row groups, per row group the ingestion times of its rows."""


def at(minutes: float) -> datetime:
    return T0 + minutes * MINUTE


@st.composite
def lakes(draw: st.DrawFn) -> tuple[Files, list[Split]]:
    """Files of one to three sources and two regions: narrow, wide, overlapping, with and without known row groups."""
    files: Files = {}
    splits = []
    for number in range(draw(st.integers(0, 12))):
        source = draw(st.sampled_from(["busy", "quiet", "late"]))
        region = draw(st.sampled_from(["eu", "us", ""]))
        start = draw(st.integers(0, 60))
        width = draw(st.sampled_from([0, 3, 10, 15, 25, 60, 240]))
        seconds = draw(st.lists(st.integers(0, width * 60), min_size=1, max_size=12))
        times = [at(start) + timedelta(seconds=second) for second in seconds]
        if draw(st.booleans()):
            times.sort()
        size = draw(st.integers(1, 5))
        groups = [times[i : i + size] for i in range(0, len(times), size)]
        loose = draw(st.sampled_from([0, 0, 7])) * MINUTE
        path = f"{source}/{number:03}.parquet"
        files[path] = groups
        known = [RowGroup(len(group), min(group), max(group)) for group in groups]
        splits.append(
            Split(
                source,
                path,
                len(times),
                100 * len(times),
                min(times) - loose,
                max(times) + loose,
                region,
                groups=tuple(known) if draw(st.booleans()) else (),
            )
        )
    return files, splits


Row = tuple[str, int, int]


def read(files: Files, split: Split) -> list[tuple[Row, datetime]]:
    """What a reader that follows the split's contract gets."""
    rows = []
    for index, group in enumerate(files[split.path]):
        for place, time in enumerate(group):
            if split.cut is None or split.cut.contains(time):
                rows.append(((split.path, index, place), time))
    return rows


def rows_of(files: Files, part: Slice) -> list[tuple[Row, datetime]]:
    return [row for one in part.sources.values() for split in one.splits for row in read(files, split)]


bounds = st.sampled_from([1, 5, 15]).map(lambda minutes: minutes * MINUTE)
windows = st.tuples(st.integers(-20, 80), st.sampled_from([1, 20, 60, 300])).map(
    lambda w: Window(at(w[0]), at(w[0] + w[1]))
)
spans = st.sampled_from([None, MINUTE, 7 * MINUTE])


@settings(max_examples=150, deadline=None)
@given(lakes(), windows, bounds, spans, st.sampled_from([1, 4, 10_000]), st.lists(st.integers(-30, 120), max_size=2))
def test_every_row_of_the_window_is_read_once_and_none_overtakes_beyond_the_bound(
    lake: tuple[Files, list[Split]],
    reads: Window,
    bound: timedelta,
    span: timedelta | None,
    max_rows: int,
    edges: list[int],
) -> None:
    files, splits = lake
    apart = [at(edge) for edge in edges]
    slices = plan_slices(splits, max_misalignment=bound, reads=reads, max_rows=max_rows, max_span=span, apart=apart)

    wanted = sorted(
        ((path, i, j), time)
        for path, groups in files.items()
        for i, group in enumerate(groups)
        for j, time in enumerate(group)
        if reads.contains(time)
    )
    assert sorted(row for part in slices for row in rows_of(files, part)) == wanted

    youngest = None
    for part in slices:
        times = [time for _, time in rows_of(files, part)]
        if times:
            assert youngest is None or youngest - min(times) <= bound
            assert part.reach is not None
            assert not any(part.reach.start < edge < part.reach.end for edge in apart)
            assert part.reach.start <= min(times)
            assert max(times) < part.reach.end
            assert part.reach.length <= 2 * (span or bound), "half of it is what the last files reach beyond"
            youngest = max([*times, youngest] if youngest else times)
    assert [part.number for part in slices] == list(range(len(slices)))
    for part in slices:
        for name, one in part.sources.items():
            assert one.splits
            assert {split.source for split in one.splits} == {name}
            assert len({split.path for split in one.splits}) == len(one.splits), "a slice reads a file once"


@settings(max_examples=40, deadline=None)
@given(lakes(), windows, bounds, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(
    lake: tuple[Files, list[Split]], reads: Window, bound: timedelta, shuffler: random.Random
) -> None:
    _, splits = lake
    shuffled = list(splits)
    shuffler.shuffle(shuffled)
    first = plan_slices(splits, max_misalignment=bound, reads=reads, max_rows=5)
    assert first == plan_slices(shuffled, max_misalignment=bound, reads=reads, max_rows=5)


@settings(max_examples=40, deadline=None)
@given(lakes(), windows, bounds)
def test_a_region_is_planned_as_if_the_others_were_not_there(
    lake: tuple[Files, list[Split]], reads: Window, bound: timedelta
) -> None:
    _, splits = lake
    alone = [split for split in splits if split.region in ("eu", "")]
    assert plan_slices(splits, max_misalignment=bound, reads=reads, regions=["eu"]) == plan_slices(
        alone, max_misalignment=bound, reads=reads
    )


@settings(max_examples=60, deadline=None)
@given(lakes(), windows, bounds)
def test_pieces_of_a_file_are_within_the_bound_and_their_rows_add_up(
    lake: tuple[Files, list[Split]], reads: Window, bound: timedelta
) -> None:
    for split in lake[1]:
        parts = list(pieces(split, reads, bound))
        assert all(part.high - part.low <= bound for part in parts)
        if reads.start <= split.low and split.high < reads.end:
            assert sum(part.rows for part in parts) == split.rows


def narrow(source: str, minute: float, rows: int = 10) -> Split:
    return Split(source, f"{source}-{minute}", rows, rows * 10, at(minute), at(minute + 1))


def test_a_quiet_source_holds_nobody_back() -> None:
    busy = [narrow("busy", minute) for minute in range(0, 240, 5)]
    quiet = [narrow("quiet", 0), narrow("quiet", 239)]
    reads = Window(at(0), at(300))
    alone = plan_slices(busy, max_misalignment=15 * MINUTE, reads=reads)
    both = plan_slices(busy + quiet, max_misalignment=15 * MINUTE, reads=reads)
    assert [part.source("busy") for part in both] == [part.source("busy") for part in alone]
    assert both[5].source("quiet") == SourceSlice()
    assert sorted(both[5].sources) == ["busy"]


def test_a_stretch_without_data_makes_no_slice() -> None:
    far_apart = [narrow("s", 0), narrow("s", 10_000)]
    assert len(plan_slices(far_apart, max_misalignment=MINUTE * 15, reads=Window(at(0), at(20_000)))) == 2
    assert plan_slices([], max_misalignment=MINUTE, reads=Window(at(0), at(1))) == ()
    assert plan_slices(far_apart, max_misalignment=MINUTE * 15, reads=Window(at(5), at(9_999))) == ()


def test_the_window_is_half_open_at_the_tick() -> None:
    tick = timedelta(microseconds=1)
    split = Split("s", "f", 3, 30, at(0), at(2))
    for reads, cut in [
        (Window(at(0), at(2)), Window(at(0), at(2))),
        (Window(at(2), at(3)), Window(at(2), at(3))),
        (Window(at(0), at(2) + tick), None),
    ]:
        (only,) = plan_slices([split], max_misalignment=15 * MINUTE, reads=reads)
        assert only.source("s").splits[0].cut == cut
    assert plan_slices([split], max_misalignment=15 * MINUTE, reads=Window(at(2) + tick, at(3))) == ()


def test_rows_close_a_slice_early_and_sources_share_it() -> None:
    splits = [narrow(source, minute) for minute in range(12) for source in ("a", "b")]
    slices = plan_slices(splits, max_misalignment=15 * MINUTE, reads=Window(at(0), at(60)), max_rows=80)
    assert [part.rows for part in slices] == [80, 80, 80]
    assert all(part.source("a").rows == part.source("b").rows == 40 for part in slices)


def test_a_compacted_day_is_cut_by_row_group_and_each_slice_reads_only_its_own() -> None:
    groups = tuple(RowGroup(100, at(60 * i), at(60 * i + 59)) for i in range(24))
    day = Split("s", "day", 2400, 24_000, at(0), at(60 * 23 + 59), groups=groups)
    slices = plan_slices([day], max_misalignment=15 * MINUTE, max_span=60 * MINUTE, reads=Window(at(0), at(1440)))
    hours = [Window(at(60 * i), at(60 * (i + 1))) for i in range(24)]
    assert [part.source("s").splits[0].cut for part in slices] == hours
    assert [part.rows for part in slices] == [100] * 24
    assert all(split.groups == () for part in slices for split in part.source("s").splits)


def test_the_smallest_bound_holds_for_all_sources() -> None:
    wide = Split("lax", "f", 100, 1000, at(0), at(60))
    slices = plan_slices(
        [wide], max_misalignment={"lax": 90 * MINUTE, "tight": 15 * MINUTE}, reads=Window(at(0), at(90))
    )
    assert len(slices) == 5


def test_what_can_not_be_planned_is_refused() -> None:
    reads = Window(at(0), at(60))
    day = replace(narrow("s", 0), high=at(59))
    with pytest.raises(PlanError, match="source 's' must be above zero"):
        plan_slices([], max_misalignment={"s": timedelta()}, reads=reads)
    with pytest.raises(PlanError, match="0 rows"):
        plan_slices([], max_misalignment=MINUTE, reads=reads, max_rows=0)
    with pytest.raises(PlanError, match="slices of 0s"):
        plan_slices([], max_misalignment=MINUTE, reads=reads, max_span=timedelta())
    with pytest.raises(PlanError, match="Cannot cut s-0"):
        plan_slices([day], max_misalignment=timedelta(milliseconds=1), reads=reads)


@given(
    rows=st.integers(0, 10**9),
    width=st.integers(1, 1000),
    hours=st.integers(1, 24 * 40),
    minutes=st.integers(1, 600),
    files=st.integers(1, 5),
)
def test_a_wide_span_is_a_multiple_of_the_bound_and_leaves_slices_enough(
    rows: int, width: int, hours: int, minutes: int, files: int
) -> None:
    reads, bound = Window(at(0), at(60 * hours)), minutes * MINUTE
    splits = [Split("s", f"f{n}", rows // files, rows // files * width, at(0), at(1)) for n in range(files)]
    span = wide_span(splits, max_misalignment=bound, reads=reads)
    assert span % bound == timedelta()
    assert span == bound or reads.length // span >= FEWEST
    share = span / reads.length
    assert span == bound or sum(split.rows for split in splits) * share <= GOOD_ROWS * 1.001
    assert span == bound or sum(split.bytes for split in splits) * share <= GOOD_BYTES * 1.001
