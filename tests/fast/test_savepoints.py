"""Savepoints and forks as files, and the line of a run that was rewound."""

from __future__ import annotations

import json
import os
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.checkpoints.files import listed
from rekappa.checkpoints.restarts import CARRIES_ON, FORK, abandoned_by, line_of, output_of, restarts
from rekappa.checkpoints.savepoints import (
    DENSE,
    KEPT,
    THINNED,
    Savepoint,
    drop,
    is_due,
    keep_points,
    name_for,
    outlived,
    passed_over,
    savepoint,
    savepoints,
    take,
)
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.storage.location import Location

NOW = datetime(2026, 11, 3, 12, tzinfo=UTC)


def write(folder: Location, batches: range, sst: bool = False) -> None:
    """A checkpoint with one state store of these batches."""
    for batch in batches:
        for name in (
            f"offsets/{batch}",
            f"commits/{batch}",
            f"state/0/0/{batch + 1}.{'changelog' if sst else 'delta'}",
        ):
            (folder / name).write(f'v1\n{{"batchTimestampMs":{batch}}}\n{name}')
    if sst:
        (folder / "state/0/0/SSTs/one.sst").write("sst")
        with zipfile.ZipFile((folder / "state/0/0/1.zip").path, "w") as packed:
            packed.writestr("metadata", 'v1\n{"sstFiles":[{"dfsSstFileName":"one.sst"}]}')
    (folder / "metadata").write('{"id":"own"}')
    (folder / "state/0/_metadata/v2/0").write(f'{{"paths":["file:{folder}/state/0/_stateSchema/default/0_x"]}}')


def contents(folder: Location) -> dict[str, bytes]:
    return {one.name: (folder / one.name).read_bytes() for one in folder.files()}


def test_a_savepoint_outlives_what_it_was_taken_of(tmp_path: Path) -> None:
    home = Home(tmp_path)
    queries = {"plays": True, "rates": False}
    for query, sst in queries.items():
        write(home.checkpoint("app", "live_1") / query, range(4), sst)
    before = contents(home.checkpoint("app", "live_1"))
    made = take(home, "app", "live_1", queries, "first")
    assert contents(home.checkpoint("app", "live_1")) == before
    assert made.batches == {"plays": 3, "rates": 3}
    kept = home.savepoints("app") / "first"
    assert os.stat((kept / "plays/state/0/0/SSTs/one.sst").path).st_nlink == 2, "nothing was copied"
    assert f"file:{kept}/plays/state/0/_stateSchema" in (kept / "plays/state/0/_metadata/v2/0").read_text()
    home.checkpoint("app", "live_1").remove()
    assert savepoints(home, "app") == (made,)
    line = line_of("live_1", "plays", lambda run: {})
    (found,) = restarts(home, "app", "plays", line, savepoints(home, "app"), verify=True)
    assert (found.point.batch, found.point.restorable, found.savepoint) == (3, True, "first")
    assert set(listed(found.folder)) >= {"commits/3", "offsets/3", "offsets/2", "state/0/0/SSTs/one.sst"}
    assert not (found.folder / "metadata").exists()
    with pytest.raises(RunError, match="there is one of that name"):
        take(home, "app", "live_1", [], "first")
    with pytest.raises(RunError, match="no batch that can be restored"):
        take(home, "app", "live_1", queries, "second")
    assert home.savepoints("app").names() == ["first"], "a refusal leaves nothing behind"
    with pytest.raises(RunError, match="Cannot name"):
        take(home, "app", "live_1", queries, "../up")
    drop(home, made)
    with pytest.raises(RunError, match="Cannot find savepoint 'first'"):
        savepoint(home, "app", "first")


def test_one_a_quarter_of_an_hour_then_one_an_hour_for_three_days() -> None:
    known: list[Savepoint] = []
    for minutes in range(0, 100 * 60, 5):
        now = NOW + timedelta(minutes=minutes)
        if is_due(known, "r", now):
            known.append(Savepoint(name_for(now, automatic=True), "app", "r", now, {}, {}))
        gone = outlived(known, now)
        known = [one for one in known if one not in gone]
    # It looked last at 99:55. Up to 93:45 one an hour has stayed, of the last three days.
    hourly = [timedelta(hours=hour) for hour in range(28, 94)]
    quarters = [timedelta(hours=94, minutes=minutes) for minutes in range(0, 360, 15)]
    assert [one.taken - NOW for one in known] == hourly + quarters


def test_a_live_run_keeps_points_and_nothing_twice_while_it_is_idle(tmp_path: Path) -> None:
    home = Home(tmp_path)
    folder = home.checkpoint("app", "live_1") / "plays"
    write(folder, range(2))
    idle = [keep_points(home, "app", "live_1", ["plays"], NOW + timedelta(hours=hour)) for hour in range(0, 150, 2)]
    assert [2 * at for at, one in enumerate(idle) if one] == [0, 76], "a new one only when the last one went"
    assert len(savepoints(home, "app")) == 1
    write(folder, range(2, 3))
    made = keep_points(home, "app", "live_1", ["plays"], NOW + timedelta(hours=150))
    assert made is not None
    assert made.batches == {"plays": 2}
    assert keep_points(home, "app", "live_1", ["plays"], NOW + timedelta(hours=151)) is None
    # What kills have left of others: an automatic one goes, that of a person goes when it is taken again.
    for name in (name_for(NOW + timedelta(hours=151), automatic=True), "by-hand"):
        (home.savepoints("app") / name / "plays/metadata").write("{}")
    left = [len(home.savepoints("app").names())]
    for hours in (152, 160):
        keep_points(home, "app", "live_1", ["plays"], NOW + timedelta(hours=hours))
        left.append(len(home.savepoints("app").names()))
    assert left == [3, 3, 2]
    assert "by-hand" in home.savepoints("app").names()


@given(st.lists(st.integers(0, 10_000), unique=True), st.booleans())
def test_only_automatic_savepoints_go_and_only_when_they_are_old(minutes: list[int], automatic: bool) -> None:
    times = sorted(NOW - timedelta(minutes=one) for one in minutes)
    known = [Savepoint(name_for(at, automatic=automatic), "app", "r", at, {}, {}) for at in times]
    gone = {one.taken for one in outlived(known, NOW)}
    stay = [at for at in times if at not in gone]
    assert automatic or not gone
    assert not gone & {at for at in times if NOW - at <= DENSE}
    assert gone >= {at for at in times if automatic and NOW - at > KEPT}
    for at in gone:
        assert NOW - at > KEPT or any(timedelta() < at - other < THINNED for other in stay), "one close by stays"
    assert {one.taken for one in outlived([one for one in known if one.taken in stay], NOW)} == set()
    assert is_due(known, "r", NOW) == (not automatic or all(one >= 15 for one in minutes))
    assert is_due(known, "another", NOW)


def test_a_newer_savepoint_is_refused_with_both_versions(tmp_path: Path) -> None:
    home = Home(tmp_path)
    write(home.checkpoint("app", "live_1") / "plays", range(2))
    take(home, "app", "live_1", ["plays"], "one")
    file = home.savepoints("app") / "one" / "savepoint.json"
    file.write(json.dumps({**json.loads(file.read_text()), "version": 7}))
    with pytest.raises(RunError, match="version 7, this rekappa knows 1"):
        savepoints(home, "app")


@pytest.mark.parametrize("text", ["", '{"version": 1, "na', "[]", '{"version": 1}'])
def test_a_damaged_savepoint_is_listed_can_be_dropped_and_stops_nothing(tmp_path: Path, text: str) -> None:
    home = Home(tmp_path)
    write(home.checkpoint("app", "live_1") / "plays", range(2))
    for name in ("one", "two"):
        take(home, "app", "live_1", ["plays"], name)
    (home.savepoints("app") / "one" / "savepoint.json").write(text)
    line = line_of("live_1", "plays", lambda run: {})
    assert {one.name: one.damaged for one in savepoints(home, "app")} == {"one": True, "two": False}
    found = restarts(home, "app", "plays", line, savepoints(home, "app"))
    assert {one.savepoint for one in found} == {None, "two"}
    drop(home, savepoint(home, "app", "one"))
    assert [one.name for one in savepoints(home, "app")] == ["two"]


def test_a_batch_whose_log_is_damaged_is_passed_over(tmp_path: Path) -> None:
    home = Home(tmp_path)
    folder = home.checkpoint("app", "live_1") / "plays"
    write(folder, range(3))
    (folder / "offsets/2").write('v1\n{"batchTimest')
    made = take(home, "app", "live_1", ["plays"], "one")
    assert made.batches == {"plays": 1}
    (lacks,) = passed_over(home, "app", "live_1", made.batches).values()
    assert (lacks.batch, lacks.lacking) == (2, ("offsets/2 (unreadable)",))


def test_the_output_of_a_bootstrapped_run_begins_with_that_of_the_run_that_it_carries_on() -> None:
    specs: dict[str, dict[str, object]] = {
        "first": {},
        "second": {FORK: {"q": {"run": "first", "batch": 4}}},
        "booted": {CARRIES_ON: {"q": "second"}},
        "third": {FORK: {"q": {"run": "booted", "batch": 7}}},
    }
    told = [(leg.run, leg.after, leg.until) for leg in output_of("third", "q", lambda run: specs[run])]
    assert told == [("third", 7, None), ("booted", -1, 7), ("second", 4, None), ("first", -1, 4)]
    assert [leg.run for leg in line_of("third", "q", lambda run: specs[run])] == ["third", "booted"]
    assert [leg.run for leg in output_of("booted", "another", lambda run: specs[run])] == ["booted"]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=6))
def test_what_counts_of_runs_that_were_rewound_again_and_again(cuts: list[int]) -> None:
    """Each run goes on after a batch of the line before it; replayed as a list of (run, batch)."""
    specs: dict[str, dict[str, object]] = {"run0": {}}
    truth = [("run0", batch) for batch in range(10)]
    for number, cut in enumerate(cuts, 1):
        batch = min(cut, truth[-1][1])
        line = line_of(f"run{number - 1}", "q", lambda run: specs[run])
        owner = next(run for run, at in truth if at == batch)
        gone = {(s.run, b) for s in abandoned_by(line, owner, batch) for b in range(40) if s.holds(b)}
        assert gone & set(truth) == {one for one in truth if one[1] > batch}
        assert not gone & {one for one in truth if one[1] <= batch}
        specs[f"run{number}"] = {FORK: {"q": {"run": owner, "batch": batch}}}
        truth = [one for one in truth if one[1] <= batch] + [
            (f"run{number}", at) for at in range(batch + 1, batch + 11)
        ]
    line = line_of(f"run{len(cuts)}", "q", lambda run: specs[run])
    assert [(s.run, b) for s in reversed(line) for b in range(40) if s.holds(b) and b <= truth[-1][1]] == truth
