"""Which mode fits which query, and what is said about it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.errors import PlanError
from rekappa.plan.mode import Safe, Unsafe, assess, choose
from rekappa.plan.plan import Mode
from rekappa.plan.shape import Kind, Operator, Reach, Shape, Tolerance

M = timedelta(minutes=1)
BULK_SAFE = [Kind.WINDOW, Kind.SESSION, Kind.TIME_GROUP, Kind.JOIN, Kind.WHOLE_ROW_DEDUP]
ORDERED_ONLY = [Kind.CUSTOM, Kind.DEDUP_WITHIN, Kind.TIMED_DEDUP]
OPEN = [Kind.AGGREGATE, Kind.OPEN_JOIN, Kind.OPEN_DEDUP]


def shape(*kinds: Kind, **more: object) -> Shape:
    made = {"event_time": "ts", **more}
    return Shape("out", tuple(Operator(kind, length=M) for kind in kinds), **made)  # type: ignore[arg-type]


def test_a_job_without_state_runs_in_bulk() -> None:
    choice = choose("job", [shape()])
    assert choice.mode is Mode.BULK
    assert "no state" in choice.reason


@pytest.mark.parametrize("kind", BULK_SAFE)
def test_bounded_state_runs_in_bulk_and_in_order(kind: Kind) -> None:
    assert choose("job", [shape(kind)]).mode is Mode.BULK
    assert choose("job", [shape(kind)], Mode.ORDERED).mode is Mode.ORDERED


@pytest.mark.parametrize("kind", ORDERED_ONLY)
def test_what_depends_on_order_is_replayed_in_order(kind: Kind) -> None:
    choice = choose("job", [shape(kind)])
    assert choice.mode is Mode.ORDERED
    assert "not bulk" in choice.reason
    with pytest.raises(PlanError, match="in bulk mode"):
        choose("job", [shape(kind)], Mode.BULK)


@pytest.mark.parametrize("kind", OPEN)
def test_state_without_end_needs_a_warm_up_from_the_user(kind: Kind) -> None:
    with pytest.raises(PlanError, match="for ever") as refusal:
        choose("job", [shape(kind)])
    assert "--warm-up" in str(refusal.value.hint)
    assert choose("job", [shape(kind)], warm_up_told=True).mode in (Mode.BULK, Mode.ORDERED)


def test_a_sink_without_event_time_can_not_hold_back_a_stateful_jobs_output() -> None:
    with pytest.raises(PlanError, match="no event time"):
        choose("job", [shape(Kind.WINDOW, event_time=None)])
    assert choose("job", [shape(event_time=None)]).mode is Mode.BULK


def test_the_clock_is_refused_by_auto_and_named() -> None:
    with pytest.raises(PlanError, match=r"current_timestamp\(\)"):
        choose("job", [shape(clock=("current_timestamp()",))])
    told = choose("job", [shape(clock=("now()",))], Mode.BULK)
    assert "now()" in told.warnings[0]


def test_chance_and_static_tables_are_warned_about() -> None:
    warnings = choose("job", [shape(random=("uuid()",), static=("shows",))]).warnings
    assert any("uuid()" in line for line in warnings)
    assert any("shows" in line for line in warnings)


@given(st.lists(st.sampled_from(list(Kind)), max_size=4), st.booleans())
def test_every_shape_has_a_verdict_for_every_mode_and_bulk_is_never_safer_than_ordered(
    kinds: list[Kind], told: bool
) -> None:
    verdicts = assess(shape(*kinds), warm_up_told=told)
    assert set(verdicts) == set(Mode)
    if isinstance(verdicts[Mode.BULK], Safe):
        assert isinstance(verdicts[Mode.ORDERED], Safe)
    assert isinstance(verdicts[Mode.EXACT], Safe)


@given(st.lists(st.sampled_from(list(Kind)), min_size=1, max_size=3))
def test_one_unsafe_output_decides_for_the_job(kinds: list[Kind]) -> None:
    if isinstance(assess(shape(*kinds))[Mode.BULK], Unsafe):
        with pytest.raises(PlanError):
            choose("job", [shape(), shape(*kinds)], Mode.BULK)


def test_reaches_add_up_with_their_reasons() -> None:
    reach = Reach().plus(5 * M, "window").plus(0 * M, "nothing").then(Reach(2 * M, ("2m join range",)))
    assert reach == Reach(7 * M, ("5m window", "2m join range"))
    assert reach.or_farther(Reach(9 * M, ("9m",), open=True)) == Reach(9 * M, ("9m",), open=True)


def test_what_is_not_known_to_be_safe_is_replayed_in_order_and_named() -> None:
    unknown = Shape("out", (Operator(Kind.UNKNOWN, "mapInPandas()"),), event_time="ts")
    choice = choose("job", [unknown])
    assert choice.mode is Mode.ORDERED
    assert "not bulk: mapInPandas(): not known" in choice.reason
    assert any("mapInPandas()" in line for line in choice.warnings)
    with pytest.raises(PlanError, match="mapInPandas"):
        choose("job", [unknown], Mode.BULK)


def test_ties_are_warned_of_in_every_mode() -> None:
    tied = Shape("out", (Operator(Kind.WINDOW), Operator(Kind.ORDER_SENSITIVE, "max_by()")), event_time="ts")
    choice = choose("job", [tied])
    assert choice.mode is Mode.ORDERED
    assert any("max_by()" in line and "tie" in line for line in choice.warnings)


def test_columns_that_are_equal_up_to_something_are_named() -> None:
    tolerances = {"total": Tolerance.ROUNDING, "names": Tolerance.ORDER}
    choice = choose("job", [shape(Kind.WINDOW, tolerances=tolerances)])
    assert choice.mode is Mode.BULK
    assert any("up to rounding" in line and "out.total" in line for line in choice.warnings)
    assert any("up to order" in line and "out.names" in line for line in choice.warnings)
