"""Chained jobs: their order, their points, their picture, and steps that are carried out once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.checkpoints.points import RestartPoint
from rekappa.checkpoints.restarts import Restart
from rekappa.errors import RunError
from rekappa.plan.offsets import Position
from rekappa.recovery.choose import choose_before
from rekappa.recovery.graph import ChainedQuery, FirstAbandoned, Flow, downstream, drawn
from rekappa.recovery.journal import RepeatableStep, carry_out
from rekappa.storage.location import Location

START = datetime(2026, 11, 1, tzinfo=UTC)


def at(number: int) -> ChainedQuery:
    return ChainedQuery(f"app{number}", "out")


def flow(writer: int, reader: int) -> Flow:
    return Flow(at(writer), f"t{writer}", at(reader), "events", "local")


edges = st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12)


@given(edges)
def test_every_query_comes_after_all_that_it_reads_from_and_circles_are_refused(found: set[tuple[int, int]]) -> None:
    forward = [flow(min(pair), max(pair)) for pair in sorted(found) if pair[0] != pair[1]]
    order = downstream(forward, [at(0)])
    reached = {at(0)}
    for _ in range(7):
        reached |= {one.reader for one in forward if one.writer in reached}
    assert set(order) == reached
    assert len(order) == len(reached)
    for one in forward:
        if one.writer in reached:
            assert order.index(one.writer) < order.index(one.reader)
    if len(order) > 1:
        back = Flow(order[-1], "back", order[0], "events", "local")
        if any(one.reader == order[-1] for one in forward):
            with pytest.raises(RunError, match=r"comes back to its writer, app0/out -> .* -> app0/out"):
                downstream([*forward, back], [at(0)])


def test_a_job_that_reads_what_it_writes_is_a_circle() -> None:
    with pytest.raises(RunError, match="comes back to its writer, app1/out -> app1/out"):
        downstream([flow(1, 1)], [at(1)])


def test_a_diamond_is_drawn_with_each_query_once() -> None:
    flows = [flow(0, 1), flow(0, 2), flow(1, 3), flow(2, 3)]
    assert list(drawn(flows, downstream(flows, [at(0)]), lambda node: f"[{node.app}]")) == [
        "app0/out  [app0]",
        "├─ t0 → app1/out  [app1]",
        "│  └─ t1 → app3/out  [app3]",
        "└─ t0 → app2/out  [app2]",
        "   └─ t2 → app3/out  (above)",
    ]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), min_size=1, max_size=12), st.data())
def test_the_point_is_the_last_that_read_nothing_abandoned(
    steps: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    places = [Position("events", "local", "t", number) for number in range(2)]
    ends, here = {}, [0, 0]
    known = []
    for number, (one, other, whole) in enumerate(steps):
        here = [here[0] + one, here[1] + other]
        ends[number] = dict(zip(places, here, strict=True))
        point = RestartPoint(number, START + timedelta(minutes=number), 0, () if whole else ("state",))
        known.append(Restart("live_1", "out", point, Location.local(Path("/c"))))
    restorable = [one for one in known if one.point.restorable]
    if not restorable:
        return
    moments = st.none() | st.integers(-1, 12).map(lambda number: START + timedelta(minutes=number))
    limits = {
        place: FirstAbandoned(data.draw(st.integers(0, 30)), data.draw(moments))
        for place in data.draw(st.sets(st.sampled_from(places)))
    }

    def fits(one: Restart, place: Position, first: FirstAbandoned) -> bool:
        read = ends[one.point.batch][place]
        return read == 0 or (read <= first.offset and (first.since is None or one.point.committed <= first.since))

    found = choose_before(known, restorable[-1], limits, lambda one: ends[one.point.batch])
    fitting = [one.point.batch for one in restorable if all(fits(one, place, limits[place]) for place in limits)]
    assert (found.point.batch if found else None) == (max(fitting) if fitting else None)


class Killed(Exception):
    """The process ends here."""


@given(st.integers(1, 6), st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=8))
def test_killed_in_or_after_any_step_the_rest_is_done_once_and_in_order(
    count: int, kills: list[tuple[int, bool]]
) -> None:
    world: list[int] = []
    noted: list[str] = []
    calls: list[int] = []

    def run(kill_at: int | None, before_note: bool) -> None:
        def do(number: int) -> None:
            calls.append(number)
            if number not in world:
                world.append(number)
            if number == kill_at and before_note:
                raise Killed

        def note(done: Sequence[str]) -> None:
            noted[:] = done
            if kill_at is not None and done[-1] == f"step {kill_at}":
                raise Killed

        steps = [RepeatableStep(f"step {number}", lambda number=number: do(number)) for number in range(count)]  # type: ignore[misc]
        carry_out(steps, list(noted), note, lambda text: None)

    for kill_at, before_note in kills:
        try:
            run(kill_at, before_note)
        except Killed:
            continue
    run(None, False)
    assert world == list(range(count))
    assert noted == [f"step {number}" for number in range(count)]
    assert all(
        calls.count(number) <= 1 + sum(before for at, before in kills if at == number) for number in range(count)
    )
