"""Events outside what is read: bounds, row groups and rows give the truth; bounds alone never say too little."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from rekappa.plan.outside import Demand, Outside, Piece, by_window, outside
from rekappa.timeline import Window, instant

Row = tuple[int | None, int]
"""When it happened, if it says, and when it was ingested."""
rows = st.tuples(st.one_of(st.none(), st.integers(-50, 50), st.just(10**18)), st.integers(-50, 50))
files = st.lists(st.lists(st.lists(rows, min_size=1, max_size=4), min_size=1, max_size=3), max_size=5)
stretch = st.tuples(st.integers(-40, 30), st.integers(1, 20)).map(lambda one: (one[0], one[0] + one[1]))


def truth(found: Sequence[Row], demand: Demand) -> Outside:
    wanted = [(at, taken) for at, taken in found if at is not None and demand.wanted[0] <= at < demand.wanted[1]]
    early = [(at, taken) for at, taken in wanted if taken < demand.reads[0]]
    late = [(at, taken) for at, taken in wanted if taken >= demand.reads[1]]
    return Outside(
        len(early),
        min((taken for _, taken in early), default=None),
        max([0, *(at - taken for at, taken in early)]),
        len(late),
        max((taken for _, taken in late), default=None),
        max([0, *(taken - at for at, taken in late)]),
    )


def piece(path: str, found: Sequence[Row], group: int | None, told: bool) -> Piece:
    known = [at for at, _ in found if at is not None]
    taken = [at for _, at in found]
    happened = (min(known), max(known)) if known and told else None
    return Piece(path, len(found), happened, (min(taken), max(taken)), group)


@given(files, stretch, stretch, st.booleans(), st.integers(0, 30))
def test_the_answer_is_the_truth_and_never_less_when_it_may_not_look(
    table: list[list[list[Row]]], wanted: tuple[int, int], reads: tuple[int, int], told: bool, budget: int
) -> None:
    demand = Demand(wanted, reads)
    listed = [piece(str(at), [row for part in file for row in part], None, told) for at, file in enumerate(table)]
    every = [row for file in table for part in file for row in part]

    def groups(file: Piece) -> list[Piece]:
        return [piece(file.path, part, at, told) for at, part in enumerate(table[int(file.path)])]

    def look(part: Piece) -> Outside:
        return truth(table[int(part.path)][part.group or 0], demand)

    right = truth(every, demand)
    assert outside(listed, demand, groups, look) == right
    for most in (0, 2):
        said = outside(listed, demand, groups, look, rows=budget, most=most)
        assert said.early >= right.early
        assert said.late >= right.late
        assert said.ahead >= right.ahead
        assert said.behind >= right.behind
        assert right.earliest is None or (said.earliest is not None and said.earliest <= right.earliest)
        assert right.latest is None or (said.latest is not None and said.latest >= right.latest)
        assert not said.exact or said == right


def test_the_distance_to_read_is_that_of_the_outermost_event() -> None:
    reads = Window(instant(100), instant(200))
    assert Outside(early=1, earliest=70).before(reads) == timedelta(microseconds=30)
    assert Outside(late=1, latest=200).after(reads) == timedelta(microseconds=1)
    assert Outside().before(reads) == Outside().after(reads) == timedelta()


@given(
    st.lists(st.one_of(st.none(), st.tuples(st.integers(-60, 60), st.integers(0, 40)))),
    st.integers(1, 9),
    st.integers(1, 6),
    st.integers(0, 5),
)
def test_every_window_gets_the_files_that_can_hold_its_events(
    bounds: list[tuple[int, int] | None], length: int, count: int, margin: int
) -> None:
    windows = [Window(instant(at * length - margin), instant((at + 1) * length + margin)) for at in range(count)]
    pieces = [Piece("f", 1, one and (one[0], one[0] + one[1]), None) for one in bounds]
    for window, found in zip(windows, by_window(pieces, windows), strict=True):
        demand = Demand.of(window, Window(instant(500), instant(501)))
        assert list(found) == [piece for piece in pieces if demand.may_miss(piece)]
