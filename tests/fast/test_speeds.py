"""How long a job will take: by what was measured of its like, or not known."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rekappa.home import Home
from rekappa.plan.shape import Operation, Operator, Shape
from rekappa.plan.speeds import FAR, Speed, kind_of_state, predicted
from rekappa.store.runs import RunStore


def measured(rows: int, seconds: float, run: str = "backfill_1", **changed: str) -> Speed:
    return Speed(**{"app": "rmi", "job": "plays", "mode": "bulk", "state": "no state", **changed}, rows=rows,
                 seconds=seconds, run=run)  # fmt: skip


counts = st.integers(1, 10**12)


@given(counts, st.lists(st.tuples(counts, st.floats(0.001, 10**6)), max_size=8))
def test_a_prediction_is_one_measured_speed_of_about_as_many_rows_or_none(
    rows: int, known: list[tuple[int, float]]
) -> None:
    speeds = [measured(count, seconds, f"run_{at}") for at, (count, seconds) in enumerate(known)]
    duration, basis = predicted(rows, speeds)
    near = [one for one in speeds if max(rows / one.rows, one.rows / rows) <= FAR]
    assert (duration is not None) == bool(near)
    if duration is not None:
        (used,) = [one for one in speeds if basis.endswith(f"in run {one.run}")]
        assert used in near
        assert abs(duration.total_seconds() - rows * used.seconds / used.rows) <= 0.051 + 1e-9 * rows * used.seconds


def test_what_is_not_known_is_said_to_be() -> None:
    assert predicted(10, []) == (None, "no run of this job in this mode, with this kind of state, has been measured")
    duration, why = predicted(10_000_000, [measured(500, 30)])
    assert duration is None
    assert why == "the nearest that was measured is 500 rows in run backfill_1, which says nothing about 10,000,000"
    assert predicted(0, [])[0] == timedelta()
    two = [measured(1000, 1, "new"), measured(1000, 2, "old")]
    assert predicted(1000, two) == (timedelta(seconds=1), "1,000 rows/s, measured over 1,000 rows in run new")


def test_the_kind_of_state_tells_shapes_apart() -> None:
    join, custom = Operator(Operation.JOIN, "10 minutes"), Operator(Operation.CUSTOM)
    assert kind_of_state([Shape("a")]) == "no state"
    assert kind_of_state([Shape("a", (custom, join, join))]) == "custom state + join within a time range"
    assert kind_of_state([Shape("a", (Operator(Operation.SORT),)), Shape("b", (join,))]) == (
        "join within a time range, in 2 queries"
    )


def test_the_store_keeps_them_apart(tmp_path: Path) -> None:
    store = RunStore.open(Home(tmp_path))
    kept = [measured(10, 1.5, "run_1"), measured(20, 2, "run_2")]
    others = [measured(1, 1, "run_3", state="custom state"), measured(1, 1, "run_4", mode="ordered")]
    others += [measured(1, 1, "run_5", job="users"), measured(1, 1, "run_6", app="shop")]
    for one in (*kept, *others):
        store.record_speed(one)
    store.record_speed(kept[1])
    assert store.speeds("rmi", "plays", "bulk", "no state") == kept[::-1]
    assert store.speeds("rmi", "plays", "exact", "no state") == []
