"""What a replay keeps beside its checkpoint: the closing batch and the journal."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from rekappa.errors import RunError
from rekappa.replay.closing import reached
from rekappa.replay.journal import PAGE, BatchNote, Journal
from rekappa.storage.location import Location

FAR = datetime(2027, 1, 1, tzinfo=UTC)


def log(checkpoint: Location, number: int, slices: list[int], *, committed: bool = True) -> None:
    head = json.dumps({"batchWatermarkMs": 1000, "batchTimestampMs": 5, "conf": {"a": "b"}})
    lines = ["v1", head, *(json.dumps({"slice": n}) for n in slices)]
    (checkpoint / "offsets" / str(number)).write("\n".join(lines))
    if committed:
        (checkpoint / "commits" / str(number)).write("v1\n{}")


def test_an_empty_checkpoint_is_at_the_beginning(location: Location) -> None:
    at = reached(location)
    assert (at.planned, at.slices, at.settled) == (None, 0, True)


def test_sources_out_of_step_are_refused(location: Location) -> None:
    log(location, 0, [1, 2])
    with pytest.raises(RunError, match=r"different slices \[1, 2\]"):
        reached(location)


def test_the_journal_counts_a_repeated_batch_once(location: Location) -> None:
    path = location / "replay"
    first = Journal(path)
    first.add(BatchNote(0, 10, 1, 5, FAR, 3))
    first.note_watermark(FAR)
    (path / ".000000.jsonl.killed.tmp").write('{"batch": 1, "ro')
    again = Journal(path)
    again.add(BatchNote(0, 10, 2, 5, None, 3))
    assert (Journal(path).rows, Journal(path).late_rows, Journal(path).newest) == (10, 2, 0)
    assert Journal(path).watermark == FAR


def test_a_long_journal_is_read_back_whole(location: Location) -> None:
    journal = Journal(location)
    for number in range(2 * PAGE + 1):
        journal.add(BatchNote(number, 1, 0, 0, None, 1))
        if number == PAGE:
            journal = Journal(location)
    again = Journal(location)
    assert (again.rows, again.newest) == (2 * PAGE + 1, 2 * PAGE)
    assert location.names() == ["000000.jsonl", "000001.jsonl", "000002.jsonl"]
