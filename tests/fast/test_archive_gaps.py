"""What a gap in the archive is, once Kafka has been asked."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from rekappa.archive.gaps import told
from rekappa.archive.proofs import SHOWN, PartitionProof
from rekappa.timeline import instant

BEFORE = instant(-1)
HELD, LOST, EMPTY = "held", "lost", "empty"


def ranges(offsets: Sequence[int]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset - 1:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return tuple(found)


@given(st.integers(0, 100), st.lists(st.sampled_from([HELD, LOST, EMPTY]), max_size=80), st.integers(0, 200))
def test_every_offset_of_a_gap_is_counted_once(begin: int, inside: list[str], first: int) -> None:
    """The archive's first and last offsets are ones that it has, by definition; Kafka begins anywhere."""
    kinds = dict(enumerate([HELD, *inside, HELD], begin))
    lacking = [offset for offset, kind in kinds.items() if kind != HELD]
    lost = [offset for offset in lacking if kinds[offset] == LOST and offset >= first]
    gone = [offset for offset in lacking if offset < first]
    proof = PartitionProof(
        "s", "t", "r", 0, begin, max(kinds), len(kinds) - len(lacking), 0, ranges(lacking)[:SHOWN], (),
        len(lacking), 0, len(lacking), 0, tuple((BEFORE, BEFORE) for _ in ranges(lacking)[:SHOWN]),
    )  # fmt: skip
    held_below = sum(kind == HELD for offset, kind in kinds.items() if offset < first)
    times = tuple((instant(low), instant(high)) for low, high in ranges(lost)[:SHOWN])
    found = told(proof, first, held_below, len(lost), ranges(lost)[:SHOWN], times)
    assert (found.missing, found.untold) == (len(lost) + len(gone), len(gone))
    assert found.empty == len(lacking) - len(lost) - len(gone)
    assert found.gaps == (ranges(gone) + ranges(lost))[:SHOWN]
    assert len(found.gap_times) == len(found.gaps), "each gap has its time"
    assert [at for at in found.gap_times if at in times] == list(times[: len(found.gaps) - len(ranges(gone))])
    assert found.sound == (not lost and not gone)
