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
from rekappa.checkpoints.restarts import FORK, abandoned_by, line_of, restarts
from rekappa.checkpoints.savepoints import (
    Savepoint,
    drop,
    is_due,
    keep_hourly,
    name_for,
    outlived,
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
            (folder / name).write(f"v1\n{name}")
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


def test_a_live_run_keeps_one_an_hour_for_three_days(tmp_path: Path) -> None:
    home = Home(tmp_path)
    write(home.checkpoint("app", "live_1") / "plays", range(2))
    for minutes in range(0, 100 * 60, 20):
        keep_hourly(home, "app", "live_1", ["plays"], NOW + timedelta(minutes=minutes))
    known = [one.taken - NOW for one in savepoints(home, "app")]
    # It looked last at 99:40; what was taken up to 27:00 is older than three days then.
    assert known == [timedelta(hours=hour) for hour in range(28, 100)]


@given(st.lists(st.integers(0, 10_000), unique=True), st.booleans())
def test_only_automatic_savepoints_go_and_only_when_they_are_old(minutes: list[int], automatic: bool) -> None:
    times = [NOW - timedelta(minutes=one) for one in minutes]
    known = [Savepoint(name_for(at, automatic=automatic), "app", "r", at, {}, {}) for at in times]
    gone = outlived(known, NOW)
    assert {one.taken for one in gone} == ({at for at in times if NOW - at > timedelta(days=3)} if automatic else set())
    assert is_due(known, "r", NOW) == (not automatic or all(one >= 60 for one in minutes))
    assert is_due(known, "another", NOW)


def test_a_newer_savepoint_is_refused_with_both_versions(tmp_path: Path) -> None:
    home = Home(tmp_path)
    write(home.checkpoint("app", "live_1") / "plays", range(2))
    take(home, "app", "live_1", ["plays"], "one")
    file = home.savepoints("app") / "one" / "savepoint.json"
    file.write(json.dumps({**json.loads(file.read_text()), "version": 7}))
    with pytest.raises(RunError, match="version 7, this rekappa knows 1"):
        savepoints(home, "app")


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
