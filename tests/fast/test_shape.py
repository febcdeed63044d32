"""Which mode fits which query, and what is said about it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.errors import PlanError
from rekappa.plan.mode import Safe, Unsafe, assess, by_slice, choose
from rekappa.plan.plan import Mode
from rekappa.plan.shape import Keeps, Operation, Operator, Reach, Revised, Shape, Taken, Tolerance

M = timedelta(minutes=1)
BULK_SAFE = [Operation.WINDOW, Operation.SESSION, Operation.TIME_GROUP, Operation.JOIN, Operation.WHOLE_ROW_DEDUP]
IN_ORDER = [Operation.CUSTOM, Operation.DEDUP_WITHIN, Operation.TIMED_DEDUP]
LAST, NEWEST = Taken(Keeps.LAST, key=("id",)), Taken(Keeps.NEWEST, key=("id",))
UPDATES = Taken(Keeps.LAST, updates=True, key=("id",))
OPEN = [Operation.AGGREGATE, Operation.OPEN_JOIN, Operation.OPEN_DEDUP]


def shape(*kinds: Operation, **more: object) -> Shape:
    made = {"event_time": "ts", **more}
    return Shape("out", tuple(Operator(kind, length=M) for kind in kinds), **made)  # type: ignore[arg-type]


def test_a_job_without_state_runs_in_bulk() -> None:
    choice = choose("job", [shape()])
    assert choice.mode is Mode.BULK
    assert "no state" in choice.reason


@pytest.mark.parametrize("kind", BULK_SAFE)
def test_bounded_state_runs_in_bulk_and_in_order(kind: Operation) -> None:
    assert choose("job", [shape(kind)]).mode is Mode.BULK
    assert choose("job", [shape(kind)], Mode.ORDERED).mode is Mode.ORDERED


@pytest.mark.parametrize("kind", IN_ORDER)
def test_what_depends_on_order_goes_slice_by_slice_in_bulk_if_it_is_alone(kind: Operation) -> None:
    choice = choose("job", [shape(kind)])
    assert choice.mode is Mode.BULK
    assert by_slice(shape(kind))
    assert "key by key in the order of slices" in choice.reason


@pytest.mark.parametrize("kind", IN_ORDER)
@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"operators": (Operator(Operation.WINDOW),)}, "beside window aggregate"),
        ({"operators": (Operator(Operation.TIMED_DEDUP),)}, "there are several"),
        ({"operators": (Operator(Operation.LIMIT),)}, "beside limit"),
        ({"taken": LAST}, "keeps the last row of a key"),
        ({"obstacle": "a step hides it"}, "a step hides it"),
    ],
)
def test_what_depends_on_order_is_replayed_in_order_if_it_is_not_alone(
    kind: Operation, more: dict[str, Any], why: str
) -> None:
    alone = shape(kind)
    mixed = replace(alone, **{**more, "operators": (*alone.operators, *more.get("operators", ()))})
    choice = choose("job", [mixed], warm_up_told=True)
    assert choice.mode is Mode.ORDERED
    assert "not bulk" in choice.reason
    assert why in choice.reason
    assert not by_slice(mixed)
    with pytest.raises(PlanError, match="in bulk mode"):
        choose("job", [mixed], Mode.BULK, warm_up_told=True)


def test_a_job_with_several_outputs_does_not_go_slice_by_slice() -> None:
    choice = choose("job", [shape(Operation.CUSTOM), replace(shape(), output="other")])
    assert choice.mode is Mode.ORDERED
    assert "several outputs" in choice.reason
    assert choose("job", [shape(Operation.CUSTOM), shape(Operation.CUSTOM)]).mode is Mode.BULK


@pytest.mark.parametrize("kind", OPEN)
def test_state_without_end_needs_a_warm_up_from_the_user(kind: Operation) -> None:
    with pytest.raises(PlanError, match="for ever") as refusal:
        choose("job", [shape(kind)])
    assert "--warm-up" in str(refusal.value.hint)
    assert choose("job", [shape(kind)], warm_up_told=True).mode in (Mode.BULK, Mode.ORDERED)


def test_a_sink_without_event_time_can_not_hold_back_a_stateful_jobs_output() -> None:
    with pytest.raises(PlanError, match="no event time"):
        choose("job", [shape(Operation.WINDOW, event_time=None)])
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


@given(
    st.lists(st.sampled_from(list(Operation)), max_size=4),
    st.booleans(),
    st.sampled_from([Taken(), LAST, NEWEST, UPDATES]),
    st.sampled_from([None, "ts"]),
    st.sampled_from([Revised(), Revised(("n",)), Revised(("id",)), Revised(decide=True)]),
)
def test_every_shape_has_a_verdict_for_every_mode_and_the_stricter_the_order_the_safer(
    kinds: list[Operation], told: bool, taken: Taken, event_time: str | None, revised: Revised
) -> None:
    verdicts = assess(shape(*kinds, taken=taken, event_time=event_time, revised=revised), warm_up_told=told)
    assert set(verdicts) == set(Mode)
    safe = [isinstance(verdicts[mode], Safe) for mode in (Mode.BULK, Mode.ORDERED, Mode.STRICT)]
    assert safe == sorted(safe)
    assert isinstance(verdicts[Mode.EXACT], Safe)


@given(st.lists(st.sampled_from(list(Operation)), min_size=1, max_size=3))
def test_one_unsafe_output_decides_for_the_job(kinds: list[Operation]) -> None:
    if isinstance(assess(shape(*kinds))[Mode.BULK], Unsafe):
        with pytest.raises(PlanError):
            choose("job", [shape(), shape(*kinds)], Mode.BULK)


def test_rows_of_one_key_are_replayed_in_the_order_of_kafka_unless_a_version_ranks_them() -> None:
    choice = choose("job", [shape(taken=LAST)])
    assert choice.mode is Mode.STRICT
    assert "not bulk: a key of its sink may come several times" in choice.reason
    assert choose("job", [shape(taken=NEWEST)]).mode is Mode.BULK
    assert choose("job", [shape(Operation.WINDOW, taken=LAST)]).mode is Mode.BULK
    with pytest.raises(PlanError, match="several times") as refusal:
        choose("job", [shape(taken=LAST)], Mode.ORDERED)
    assert "--mode strict" in str(refusal.value.hint)


def test_bulk_may_be_asked_for_where_the_run_itself_finds_a_key_that_comes_twice() -> None:
    choice = choose("job", [shape(taken=LAST)], Mode.BULK)
    assert choice.mode is Mode.BULK
    assert "the run fails if it matters" in choice.reason


def test_a_window_in_update_mode_runs_in_bulk() -> None:
    assert choose("job", [shape(Operation.WINDOW, taken=UPDATES)]).mode is Mode.BULK


def test_a_running_aggregate_by_key_alone_needs_micro_batches_and_is_said_to() -> None:
    running = shape(Operation.AGGREGATE, event_time=None, taken=UPDATES)
    with pytest.raises(PlanError, match="all of history") as refusal:
        choose("job", [running])
    assert "--warm-up" in str(refusal.value.hint)
    choice = choose("job", [running], warm_up_told=True)
    assert choice.mode is Mode.ORDERED
    assert "only micro-batches tell which keys" in choice.reason
    assert any("where production stands now" in line for line in choice.warnings)


@pytest.mark.parametrize("revised", [Revised(decide=True), Revised(columns=("n", "id"))])
def test_what_depends_on_productions_micro_batches_is_exact_or_refused(revised: Revised) -> None:
    odd = shape(Operation.WINDOW, taken=UPDATES, revised=revised)
    with pytest.raises(PlanError, match="production's micro-batches") as refusal:
        choose("job", [odd])
    assert "--mode exact" in str(refusal.value.hint)
    assert choose("job", [odd], Mode.EXACT).mode is Mode.EXACT
    assert choose("job", [shape(Operation.WINDOW, taken=LAST, revised=revised)]).mode is Mode.BULK


def test_reaches_add_up_with_their_reasons() -> None:
    reach = Reach().plus(5 * M, "window").plus(0 * M, "nothing").then(Reach(2 * M, ("2m join range",)))
    assert reach == Reach(7 * M, ("5m window", "2m join range"))
    assert reach.or_farther(Reach(9 * M, ("9m",), open=True)) == Reach(9 * M, ("9m",), open=True)


def test_what_is_not_known_to_be_safe_is_replayed_in_order_and_named() -> None:
    unknown = Shape("out", (Operator(Operation.UNKNOWN, "mapInPandas()"),), event_time="ts")
    choice = choose("job", [unknown])
    assert choice.mode is Mode.ORDERED
    assert "not bulk: mapInPandas(): not known" in choice.reason
    assert any("mapInPandas()" in line for line in choice.warnings)
    with pytest.raises(PlanError, match="mapInPandas"):
        choose("job", [unknown], Mode.BULK)


def test_ties_are_warned_of_in_every_mode() -> None:
    tied = Shape("out", (Operator(Operation.WINDOW), Operator(Operation.ORDER_SENSITIVE, "max_by()")), event_time="ts")
    choice = choose("job", [tied])
    assert choice.mode is Mode.ORDERED
    assert any("max_by()" in line and "tie" in line for line in choice.warnings)


def test_columns_that_are_equal_up_to_something_are_named() -> None:
    tolerances = {"total": Tolerance.ROUNDING, "names": Tolerance.ORDER}
    choice = choose("job", [shape(Operation.WINDOW, tolerances=tolerances)])
    assert choice.mode is Mode.BULK
    assert any("up to rounding" in line and "out.total" in line for line in choice.warnings)
    assert any("up to order" in line and "out.names" in line for line in choice.warnings)
