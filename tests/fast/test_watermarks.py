"""The watermark of every batch, without running any."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rekappa.plan.watermarks import Policy, trace

OPERATORS = ("a", "b")
maxima = st.lists(st.dictionaries(st.sampled_from(OPERATORS), st.integers(0, 1000)), max_size=12)
delays = st.fixed_dictionaries({name: st.integers(0, 300) for name in OPERATORS})


def test_a_batch_has_the_watermark_of_the_batches_before_it() -> None:
    found = trace([{"a": 100}, {}, {"a": 90}, {"a": 300}], {"a": 10}, closing=[250, 1000])
    assert found.marks == (0, 90, 90, 90, 290, 1000)
    assert found.late == (0, 0, 90, 90)
    assert found.slices == 4


def test_an_operator_without_rows_holds_the_others_back() -> None:
    seen = [{"a": 100}, {"a": 200, "b": 50}, {"a": 300}]
    assert trace(seen, {"a": 0, "b": 0}).marks == (0, 0, 50)
    assert trace(seen, {"a": 0, "b": 0}, policy=Policy.MAX).marks == (0, 100, 200)


def test_recorded_watermarks_hold_whatever_the_data_says() -> None:
    assert trace([{"a": 100}, {"a": 200}, {"a": 300}], {"a": 0}, recorded=[7, 8, None]).marks == (7, 8, 200)


def test_without_a_watermark_there_is_none() -> None:
    assert trace([{}, {}], {}, closing=[None, 50]).marks == (0, 0, 0, 50)


@given(maxima, delays, st.sampled_from(Policy))
def test_it_never_falls_and_is_the_policys_choice_of_all_that_was_read(
    found: list[dict[str, int]], delay: dict[str, int], policy: Policy
) -> None:
    made = trace(found, delay, policy=policy)
    assert made.rising
    assert len(made.marks) == len(found)
    chosen = min if policy is Policy.MIN else max
    highest = 0
    for number, mark in enumerate(made.marks):
        assert mark == highest
        read = found[: number + 1]
        reached = [max((one[name] - delay[name] for one in read if name in one), default=0) for name in OPERATORS]
        highest = max(highest, chosen(reached))
