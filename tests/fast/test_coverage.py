"""Where a run's events are: every wanted offset is read once, or the first that nobody has is named."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rekappa.plan.coverage import Hole, Kept, ReadStretch, Want, cover, dropped, without
from rekappa.plan.offsets import Position

AT = Position("plays", "eu", "plays", 0)

offsets = st.integers(0, 40)


@st.composite
def archives(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Stretches in order, with a gap between any two."""
    edges = sorted(draw(st.lists(offsets, unique=True, max_size=8)))
    return list(zip(edges[::2], edges[1::2], strict=False))


@given(offsets, offsets, offsets, archives())
def test_every_wanted_offset_is_read_once_or_the_first_that_nobody_has_is_named(
    start: int, first: int, more: int, archived: list[tuple[int, int]]
) -> None:
    kept = Kept(first, first + more)
    held = {offset for low, high in archived for offset in range(low, high)}
    if held and max(held) >= kept.end:
        kept = Kept(first, max(held) + 1) if max(held) + 1 >= first else kept
    found = cover([Want(AT, start)], {AT: kept}, {AT: archived})
    if start > kept.end:
        assert "created anew" in found.holes[0].why
        return
    in_kafka = set(range(kept.first, kept.end))
    nowhere = [offset for offset in range(start, kept.end) if offset not in held | in_kafka]
    if found.holes:
        (hole,) = found.holes
        assert nowhere
        assert hole.start == nowhere[0]
        assert set(range(hole.start, hole.end)) <= set(nowhere)
        return
    (stretch,) = found.stretches
    assert not nowhere
    assert set(range(stretch.start, stretch.hand_over)) <= held
    assert set(range(stretch.hand_over, stretch.end)) <= in_kafka
    assert (stretch.start, stretch.end) == (start, kept.end)
    assert stretch.hand_over not in held or stretch.hand_over == stretch.start == kept.end, "as late as it can"


def test_a_batch_that_was_begun_is_read_whole() -> None:
    kept, archived = {AT: Kept(10, 50)}, {AT: [(0, 20)]}
    assert cover([Want(AT, 5, begun=20)], kept, archived).stretches == (ReadStretch(AT, 5, 20, 50),)
    (hole,) = cover([Want(AT, 5, begun=21)], kept, archived).holes
    assert (hole.start, hole.end) == (20, 21)
    assert "begun" in hole.why
    (unarchived,) = cover([Want(AT, 15, begun=16)], kept, {}).holes
    assert (unarchived.start, unarchived.end) == (15, 16)


def test_why_nobody_has_it() -> None:
    def why(start: int, kept: Kept | None, *archived: tuple[int, int]) -> str:
        (hole,) = cover([Want(AT, start)], {AT: kept} if kept else {}, {AT: archived}).holes
        assert isinstance(hole, Hole)
        return str(hole)

    place = "topic 'plays' in region 'eu', partition 0"
    gone = "Kafka has dropped everything below 10"
    assert why(3, Kept(10, 20)) == f"{place}, offsets 3 to 9: {gone}, and the archive has nothing of it"
    assert why(3, Kept(10, 20), (5, 15)) == f"{place}, offsets 3 to 4: {gone}, and the archive begins at 5"
    behind = f"{gone}, and the archive ends at 8: the router is behind"
    assert why(3, Kept(10, 20), (0, 8)) == f"{place}, offsets 8 to 9: {behind}"
    assert why(3, Kept(10, 20), (0, 5), (7, 15)) == f"{place}, offsets 5 to 6: {gone}, and the archive has a gap there"
    assert "no such partition" in why(3, None)
    assert "ends at offset 2: it was created anew" in why(3, Kept(0, 2))
    assert "does not reach" in why(3, Kept(0, 5), (0, 9))


def test_what_kafka_has_dropped() -> None:
    wants = [Want(AT, 5), Want(AT._replace(partition=1), 10)]
    kept = {AT: Kept(6, 9), AT._replace(partition=1): Kept(10, 12)}
    assert dropped(wants, kept) == wants[:1]


@given(st.sets(st.integers(0, 30)), st.integers(0, 10), st.integers(10, 31))
def test_without_gaps(missing: set[int], first: int, end: int) -> None:
    gaps: list[tuple[int, int]] = []
    for offset in sorted(missing):
        if gaps and gaps[-1][1] == offset - 1:
            gaps[-1] = (gaps[-1][0], offset)
        else:
            gaps.append((offset, offset))
    inside = [(low, high) for low, high in gaps if high >= first and low < end]
    held = [offset for low, high in without(first, end, inside) for offset in range(low, high)]
    assert held == [offset for offset in range(first, end) if offset not in missing]
