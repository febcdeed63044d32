"""What a bootstrapped run is told, and which of its batches are history: by Spark's own log, written here as it is."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.errors import RunError
from rekappa.plan.offsets import Position
from rekappa.replay.catch_up import ends_of, offset_line
from rekappa.runs.history import FILE, History, reached
from rekappa.spark.offsetlog import logged_topic
from rekappa.storage.location import Location

FEEDS = (("plays", "eu", "plays"), ("plays", "us", "us.plays"))
EU, US = (Position(*feed, 0) for feed in FEEDS)
HISTORY = History(
    since=datetime(2026, 11, 1, tzinfo=UTC),
    starts={EU: 3, US: 0},
    until={"counts": {EU: 10, US: 5}, "pairs": {EU: 7, US: 2}},
    closed=frozenset(["pairs"]),
)


def log(folder: Path, number: int, *lines: str) -> Location:
    """An offset file as Spark writes it."""
    place = folder / "offsets" / str(number)
    place.parent.mkdir(parents=True, exist_ok=True)
    head = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1_790_000_000_000, "conf": {}})
    place.write_text("\n".join(["v1", head, *lines]))
    return Location.local(folder)


def test_what_it_was_told_is_kept(tmp_path: Path) -> None:
    folder = Location.local(tmp_path)
    assert History.load(folder) is None, "a run that was not bootstrapped"
    for told in (HISTORY, replace(HISTORY, held=False, allow_gaps=True, closed=frozenset())):
        told.save(folder)
        assert History.load(folder) == told


def test_a_newer_version_is_refused_with_both_numbers(tmp_path: Path) -> None:
    HISTORY.save(Location.local(tmp_path))
    told = json.loads((tmp_path / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps({**told, "version": 2}))
    with pytest.raises(RunError, match="its version is 2, this rekappa knows 1"):
        History.load(Location.local(tmp_path))


def test_batches_up_to_the_end_of_history_are_held_back(tmp_path: Path) -> None:
    def line(eu: int, us: int) -> tuple[str, str]:
        return f'{{"plays":{{"0":{eu}}}}}', f'{{"us.plays":{{"0":{us}}}}}'

    checkpoint = log(tmp_path, 0, *line(6, 1))
    for number, ends in enumerate([(10, 5), (11, 5), (10, 6), (40, 40)], 1):
        log(tmp_path, number, *line(*ends))

    def held(query: str, history: History = HISTORY) -> list[bool]:
        return [history.holds_back(query, checkpoint, FEEDS, number) for number in range(5)]

    assert held("counts") == [True, True, False, False, False]
    assert held("pairs") == [True, False, False, False, False]
    assert held("counts", replace(HISTORY, held=False)) == [False] * 5
    assert held("added later") == [False] * 5


def test_a_source_that_is_read_twice_is_where_its_last_reader_is(tmp_path: Path) -> None:
    checkpoint = log(tmp_path, 3, '{"plays":{"0":9,"1":4}}', '{"plays":{"0":7,"1":6}}')
    assert reached(checkpoint, 3, FEEDS[:1]) == {EU: 7, EU._replace(partition=1): 4}


@given(st.dictionaries(st.integers(0, 200), st.integers(0, 1 << 60), min_size=1))
def test_a_line_says_what_kafkas_does(ends: dict[int, int]) -> None:
    own = {Position(*FEEDS[1], number): end for number, end in ends.items()}
    line = offset_line(FEEDS[1], own | {EU: 3})
    assert json.loads(line) == {"us.plays": {str(number): end for number, end in ends.items()}}
    assert ends_of(FEEDS[1], line) == own


def test_a_line_about_another_topic_is_refused() -> None:
    with pytest.raises(RunError, match="has 'shows' where the job now reads topic 'plays'"):
        ends_of(FEEDS[0], '{"shows":{"0":1}}')
    with pytest.raises(RunError, match="has 7 where"):
        ends_of(FEEDS[0], "7")


def test_a_line_names_its_topic_if_it_is_kafkas() -> None:
    assert logged_topic('{"plays":{"0":120,"1":96}}') == "plays"
    for other in (None, "7", '{"version":1,"snapshot_id":12,"position":0}', "{}"):
        assert logged_topic(other) is None
