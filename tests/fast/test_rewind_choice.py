"""Where a rewind goes back to, what changed code makes of kept state, and the record of what was planned."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.checkpoints.fingerprint import (
    StatefulOperator,
    compare_state,
    read_fingerprint,
    require_same_state,
    write_fingerprint,
)
from rekappa.checkpoints.fork import files_of, fork
from rekappa.checkpoints.points import RestartPoint
from rekappa.checkpoints.restarts import Leg, Restart
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.recovery.choose import ToBatch, ToNewest, ToSavepoint, ToTime, choose, parse_to
from rekappa.recovery.plan import QueryRewind, RewindPlan, SinkReset, planned_again
from rekappa.runs.current import drop_abandoned
from rekappa.storage.location import Location
from rekappa.store.code import Code
from rekappa.store.record import Batch, Fork, Kind, Run, Start, State
from rekappa.store.runs import RunStore

START = datetime(2026, 11, 1, tzinfo=UTC)
CHECKPOINT = Location.local(Path("/c"))


def point(batch: int, *lacking: str, savepoint: str | None = None) -> Restart:
    committed = START + timedelta(minutes=batch)
    return Restart("live_1", "plays", RestartPoint(batch, committed, 0, lacking), CHECKPOINT, savepoint)


KNOWN = [point(1, "state/0/0/2.delta"), point(2), point(4), point(4, savepoint="kept"), point(5, "offsets/4")]


def test_a_time_means_the_last_batch_by_then_that_can_be_restored() -> None:
    assert choose("plays", KNOWN, ToTime(START + timedelta(minutes=3))) == point(2)
    assert choose("plays", KNOWN, ToTime(START + timedelta(minutes=9))) == point(4), "the run's own comes first"
    assert choose("plays", KNOWN, ToNewest()) == point(4)
    assert choose("plays", KNOWN, ToSavepoint("kept")) == point(4, savepoint="kept")
    with pytest.raises(RunError, match="none of its batches that can be restored was committed by") as told:
        choose("plays", KNOWN, ToTime(START + timedelta(minutes=1)))
    assert "The nearest that can be restored: 2 (committed" in str(told.value.hint)


def test_a_batch_that_can_t_be_restored_is_refused_with_its_file_and_its_neighbours() -> None:
    assert choose("plays", KNOWN, ToBatch(2)) == point(2)
    with pytest.raises(RunError, match=r"to batch 1: it lacks state/0/0/2\.delta") as told:
        choose("plays", KNOWN, ToBatch(1))
    assert "The nearest that can be restored: 2 (" in str(told.value.hint)
    with pytest.raises(RunError, match="to batch 3: there is no such batch") as told:
        choose("plays", KNOWN, ToBatch(3))
    assert "2 (" in str(told.value.hint)
    assert "4 (" in str(told.value.hint)
    with pytest.raises(RunError, match="savepoint 'other' holds no batch of it that counts"):
        choose("plays", KNOWN, ToSavepoint("other"))
    with pytest.raises(RunError, match="none of its batches can be restored") as told:
        choose("plays", KNOWN[:1], ToNewest())
    assert "--no-state" in str(told.value.hint)


def test_what_to_go_back_to_is_a_number_or_a_moment() -> None:
    assert parse_to("17") == ToBatch(17)
    assert parse_to("2026-11-01T00:00Z") == ToTime(START)
    with pytest.raises(RunError, match="Cannot rewind to 'yesterday'"):
        parse_to("yesterday")


sums = st.lists(st.sampled_from("abcdef").map(lambda column: f"sum({column})"), min_size=1, max_size=4, unique=True)


@given(sums, st.data())
def test_a_slot_that_moved_is_refused_and_a_new_expression_in_its_place_is_told(
    values: list[str], data: st.DataObject
) -> None:
    kept = [StatefulOperator("aggregate", ("name",), tuple(values))]
    for other in permutations(values):
        found = compare_state(kept, [StatefulOperator("aggregate", ("name",), other)])
        assert bool(found.misread) == (list(other) != values)
        assert not found.changed
    at = data.draw(st.integers(0, len(values) - 1))
    renewed = [*values[:at], "sum(new)", *values[at + 1 :]]
    found = compare_state(kept, [StatefulOperator("aggregate", ("name",), tuple(renewed))])
    assert not found.misread
    assert found.changed == (f"value {at + 1} of operator 1 (aggregate) was {values[at]}, now it is sum(new)",)
    assert compare_state(kept, [StatefulOperator("aggregate", ("name",), (*values, "sum(new)"))]).misread


def test_other_operators_than_before_are_refused(tmp_path: Path) -> None:
    join = StatefulOperator("join", ("a = b",), ("a", "x", "b"))
    assert compare_state([join], []).misread == ("operator 1 was join of a, x, b by a = b, now it is not there",)
    assert compare_state([join], [StatefulOperator("deduplication", ("a",))]).misread
    wider = StatefulOperator("join", ("a = b",), ("a", "x", "b", "c"))
    assert not compare_state([join], [wider]).misread, "Spark keeps the columns of a join that are used"
    here = Location.local(tmp_path)
    assert read_fingerprint(here) is None
    write_fingerprint(here, [join])
    assert read_fingerprint(here) == (join,)
    with pytest.raises(RunError, match="Cannot go on with the state of query 'plays': value 1 of operator 1"):
        require_same_state("plays", [join], [StatefulOperator("join", ("a = b",), ("b", "x", "a"))])


def test_a_fork_shares_its_files_and_has_an_id_of_its_own(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in ("offsets/0", "offsets/1", "offsets/2", "commits/0", "commits/1", "commits/2", "metadata"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    for version in range(1, 4):
        (source / "state/0/0").mkdir(parents=True, exist_ok=True)
        (source / f"state/0/0/{version}.delta").write_text("state")
    original, forked = Location.local(source), Location.local(tmp_path / "fork")
    write_fingerprint(original, [])
    fork(original, files_of(original, 1), forked)
    there = {str(path.relative_to(tmp_path / "fork")) for path in (tmp_path / "fork").rglob("*") if path.is_file()}
    assert there == {"offsets/0", "offsets/1", "commits/1", "state/0/0/1.delta", "state/0/0/2.delta",
                     "rekappa-state.json", "metadata"}  # fmt: skip
    assert (source / "metadata").read_text() == "metadata"
    assert (tmp_path / "fork/metadata").read_text() != "metadata"
    write_fingerprint(forked, [StatefulOperator("join")])
    assert read_fingerprint(original) == (), "what the fork writes is not written into the original"
    (source / "state/0/0/1.delta").unlink()
    with pytest.raises(RunError, match=r"it lacks state/0/0/1\.delta"):
        files_of(original, 1)


def test_a_plan_is_read_back_as_it_was_written() -> None:
    reset = SinkReset("plays", "lake.x", 3, 1, "as they were")
    part = QueryRewind(
        query="plays", run="live_1", batch=4, last=9, committed=START, savepoint="kept", folder=None,
        abandoned=(Leg("live_1", 4, None),), dead=("live_0",), since=START, reset=reset, notes=("n",),
    )  # fmt: skip
    plan = RewindPlan("live_2", "app", "live_1", (part,))
    assert planned_again(plan.as_json()) == plan
    with pytest.raises(RunError, match="version 9: this rekappa knows 2"):
        planned_again({**plan.as_json(), "version": 9})


def test_the_run_that_goes_on_has_the_records_that_count(tmp_path: Path) -> None:
    store = RunStore.open(Home(tmp_path / ".rekappa"))
    old = store.create(Run("live_1", "app", Kind.LIVE, "/app", state=State.STOPPED))
    for query in ("plays", "rates"):
        store.record_batches(Batch("live_1", query, number, (), None, START) for number in range(-1, 9))
        for batch in (0, 5):
            store.record_start(Start("live_1", query, batch, Code(f"code{batch}")))
    store.fork_runs([Fork(Run("live_2", "app", Kind.LIVE, "/app"), old.id, {"plays": 4, "rates": -1})])
    assert [one.number for one in store.batches("live_2", "plays")] == list(range(-1, 5))
    assert store.batches("live_2", "rates") == []
    assert [one.code.hash for one in store.starts("live_2", "plays")] == ["code0"]
    assert [store.run(one).state for one in ("live_1", "live_2")] == [State.ABANDONED, State.CREATED]
    assert not store.run("live_1").state.resumable
    assert len(store.batches("live_1", "plays")) == 10
    ended, home = store.run("live_1").ended, Home(tmp_path / ".rekappa")
    assert ended is not None
    for days, there in ((6, ["live_1", "live_2"]), (8, ["live_2"])):
        for run in ("live_1", "live_2"):
            (home.checkpoint("app", run) / "plays" / "metadata").write("{}")
        drop_abandoned(home, store, "app", ended + timedelta(days=days))
        assert (home.storage / "checkpoints" / "app").names() == there
    store.swap_runs({"live_2": "live_1"})
    assert [store.run(one).state for one in ("live_1", "live_2")] == [State.STOPPED, State.ABANDONED]
