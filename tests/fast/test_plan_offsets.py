"""Slices by offset: every offset of a partition once and in Kafka's order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from rekappa.plan.model import OffsetBounds, Slice, Split
from rekappa.plan.offsets import CutPoint, Position, strict_slices
from rekappa.timeline import Window

T0 = datetime(2026, 11, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
BUCKET = 5 * MINUTE
Row = tuple[Position, int, datetime]


def at(minutes: float) -> datetime:
    return T0 + minutes * MINUTE


POSITIONS = [Position(s, r, s, p) for s in ("plays", "shows") for r in ("eu", "us") for p in (0, 1)]


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Row], dict[str, list[Row]], list[Split]]:
    """Kafka logs, with gaps in the offsets and producers' clocks that go back; and the files that archived them."""
    rows: list[Row] = []
    for position in draw(st.lists(st.sampled_from(POSITIONS), unique=True, min_size=1, max_size=4)):
        offset, minute = draw(st.integers(0, 100)), 0
        for step, jump in draw(st.lists(st.tuples(st.integers(1, 3), st.integers(-6, 12)), max_size=15)):
            minute = max(0, minute + jump)
            rows.append((position, offset, at(minute)))
            offset += step
    files: dict[str, list[Row]] = {}
    places = draw(st.lists(st.integers(0, 2), min_size=16, max_size=16))
    for number, row in enumerate(rows):
        place = places[number // 4]
        files.setdefault(f"{row[0].source}/{row[0].region}/{place}", []).append(row)
    known = draw(st.booleans())
    return rows, files, [split_of(path, own, known) for path, own in files.items()]


def split_of(path: str, own: list[Row], known: bool) -> Split:
    partitions, offsets, times = [row[0].partition for row in own], [row[1] for row in own], [row[2] for row in own]
    bounds = OffsetBounds(min(partitions), max(partitions), min(offsets), max(offsets)) if known else None
    position = own[0][0]
    return Split(position.source, path, len(own), 10, min(times), max(times), position.region, positions=bounds)


def cut_points(rows: list[Row], reads: Window) -> list[CutPoint]:
    """What the scan of the archive at plan time answers."""
    groups: dict[tuple[Position, datetime], list[int]] = {}
    for position, offset, time in rows:
        if reads.contains(time):
            groups.setdefault((position, T0 + (time - T0) // BUCKET * BUCKET), []).append(offset)
    return [
        CutPoint(position, Window(start, start + BUCKET), min(offsets), max(offsets), len(offsets))
        for (position, start), offsets in groups.items()
    ]


def read(files: dict[str, list[Row]], part: Slice) -> list[Row]:
    """What a reader that follows the slice's contract gets, sorted within the slice as strict mode does."""
    rows = []
    for source, one in part.sources.items():
        for split in one.splits:
            for row in files[split.path]:
                if (split.cut is None or split.cut.contains(row[2])) and any(
                    row[0] == (source, o.region, o.topic, o.partition) and o.start <= row[1] < o.end
                    for o in one.offsets
                ):
                    rows.append(row)
    return sorted(rows)


def assert_ranges_tile(slices: tuple[Slice, ...]) -> None:
    reached: dict[tuple[str, str, str, int], int] = {}
    for part in slices:
        for source, one in part.sources.items():
            for wanted in one.offsets:
                key = (source, wanted.region, wanted.topic, wanted.partition)
                assert wanted.start < wanted.end
                assert reached.get(key, wanted.start) == wanted.start
                reached[key] = wanted.end


@settings(max_examples=120, deadline=None)
@given(logs(), st.integers(0, 30), st.integers(1, 120), st.sampled_from([1, 5, 1000]), st.sampled_from([5, 15, 60]))
def test_strict_slices_give_every_offset_of_a_partition_once_and_in_order(
    log: tuple[list[Row], dict[str, list[Row]], list[Split]], start: int, length: int, max_rows: int, span: int
) -> None:
    rows, files, splits = log
    reads = Window(at(start), at(start + length))
    points = cut_points(rows, reads)
    slices = strict_slices(points, splits, reads=reads, max_rows=max_rows, max_span=span * MINUTE)

    delivered = [row for part in slices for row in read(files, part)]
    for position in POSITIONS:
        wanted = [row for row in rows if row[0] == position and reads.contains(row[2])]
        assert [row for row in delivered if row[0] == position] == wanted
    assert_ranges_tile(slices)
    for part in slices:
        times = [row[2] for row in read(files, part)]
        assert not times or (part.reach is not None and part.reach.start <= min(times) and max(times) < part.reach.end)
    assert slices == strict_slices(points[::-1], splits[::-1], reads=reads, max_rows=max_rows, max_span=span * MINUTE)


def test_strict_slices_advance_all_partitions_together_and_attach_few_files() -> None:
    rows = [(Position("plays", "eu", "t", p), n, at(n)) for n in range(60) for p in (0, 1)]
    files = {f"{n:02}": [row for row in rows if row[1] // 5 == n] for n in range(12)}
    splits = [split_of(path, own, True) for path, own in files.items()]
    reads = Window(at(0), at(60))
    slices = strict_slices(cut_points(rows, reads), splits, reads=reads, max_rows=20, max_span=60 * MINUTE)
    assert [[o.end for o in part.source("plays").offsets] for part in slices] == [[n, n] for n in range(10, 61, 10)]
    assert [len(part.source("plays").splits) for part in slices] == [2] * 6
    other = strict_slices(cut_points(rows, reads), splits, reads=reads, max_rows=20, max_span=BUCKET, regions=["us"])
    assert other == ()
