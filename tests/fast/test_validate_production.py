"""Which code made which micro-batch: over generated histories of starts and batches."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.plan.model import OffsetRange, Slice, SourceSlice
from rekappa.store.code import Code
from rekappa.store.record import Batch, Standing, Start
from rekappa.validate.production import NoControl, same_code, stretches, versions

AT = datetime(2026, 11, 1, tzinfo=UTC)


def history(steps: list[int]) -> list[Batch]:
    ends, batches = 0, [Batch("r", "q", -1, (Standing("s", "eu", "t", {0: 0}),), None, AT)]
    for number, step in enumerate(steps):
        ends += step
        batches.append(Batch("r", "q", number, (Standing("s", "eu", "t", {0: ends}),), AT, AT))
    return batches


def slices(steps: list[int], first: int, last: int) -> list[Slice]:
    found, at = [], sum(steps[:first])
    for number in range(first, last):
        end = at + steps[number]
        offsets = (OffsetRange("eu", "t", 0, at, end),) if end > at else ()
        found.append(Slice(number - first, {"s": SourceSlice((), offsets)} if offsets else {}))
        at = end
    return found


@given(st.data())
def test_every_batch_is_run_by_the_code_that_ran_it(data: st.DataObject) -> None:
    steps = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=12).filter(any))
    first = data.draw(st.integers(0, len(steps) - 1).filter(lambda at: any(steps[at:])))
    last = data.draw(st.integers(first + 1, len(steps)).filter(lambda at: any(steps[first:at])))
    begun = data.draw(st.lists(st.tuples(st.integers(0, len(steps)), st.sampled_from("abc")), max_size=4))
    starts = {0: "z", **dict(begun)}
    ran = [starts[max(at for at in starts if at <= number)] for number in range(len(steps))]
    known = versions([Start("r", "q", batch, Code(code)) for batch, code in starts.items()])
    found = stretches(slices(steps, first, last), history(steps), known)
    told: list[str | None] = []
    for one in found:
        assert one.until is not None
        told += [one.code.hash] * (one.until - len(told))
    reading = next(at for at in range(first, last) if steps[at])
    assert told == [ran[max(at, reading)] for at in range(first, last)]
    assert all(not same_code(one.code, two.code) for one, two in pairwise(found))


def test_what_is_not_known_is_said() -> None:
    with pytest.raises(NoControl, match="not recorded"):
        versions([])
    with pytest.raises(NoControl, match="too large"):
        versions([Start("r", "q", 0, Code(None, reason="too large"))])
    known = versions([Start("r", "q", 2, Code("a"))])
    with pytest.raises(NoControl, match="batch 0"):
        stretches(slices([1, 1, 1], 0, 3), history([1, 1, 1]), known)
    with pytest.raises(NoControl, match="not production's recorded"):
        stretches(slices([5], 0, 1), history([1, 1]), known)


def test_overrides_belong_to_the_code_where_they_change_what_is_computed() -> None:
    plain = Code("a")
    assert same_code(plain, Code("a", overrides=("profiles.live.master=local[1]", "sources.s.selected=live")))
    assert same_code(plain, Code("a", overrides=("sources.s.candidates.live.max_records_per_batch=200",)))
    assert not same_code(plain, Code("a", overrides=("sources.s.event_time=other",)))
    assert not same_code(Code(None), Code(None))
