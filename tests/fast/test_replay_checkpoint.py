"""What a replay keeps beside its checkpoint: the closing batch and the journal."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rekappa.errors import RunError
from rekappa.replay.closing import reached
from rekappa.replay.journal import BatchNote, Journal

FAR = datetime(2027, 1, 1, tzinfo=UTC)


def log(checkpoint: Path, number: int, slices: list[int], *, committed: bool = True) -> None:
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    head = json.dumps({"batchWatermarkMs": 1000, "batchTimestampMs": 5, "conf": {"a": "b"}})
    lines = ["v1", head, *(json.dumps({"slice": n}) for n in slices)]
    (checkpoint / "offsets" / str(number)).write_text("\n".join(lines))
    if committed:
        (checkpoint / "commits" / str(number)).write_text("v1\n{}")


def test_an_empty_checkpoint_is_at_the_beginning(tmp_path: Path) -> None:
    at = reached(tmp_path)
    assert (at.planned, at.slices, at.settled) == (None, 0, True)


def test_sources_out_of_step_are_refused(tmp_path: Path) -> None:
    log(tmp_path, 0, [1, 2])
    with pytest.raises(RunError, match=r"different slices \[1, 2\]"):
        reached(tmp_path)


def test_the_journal_counts_a_repeated_batch_once(tmp_path: Path) -> None:
    path = tmp_path / "replay.jsonl"
    first = Journal(path)
    first.add(BatchNote(0, 10, 1, 5, FAR, 3))
    first.note_watermark(FAR)
    with path.open("a") as out:
        out.write('{"batch": 1, "ro')
    again = Journal(path)
    again.add(BatchNote(0, 10, 2, 5, None, 3))
    assert (Journal(path).rows, Journal(path).late_rows, Journal(path).newest) == (10, 2, 0)
    assert Journal(path).watermark == FAR
