"""What a replay keeps beside its checkpoint: the closing batch and the journal."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rekappa.errors import PlanError, RunError
from rekappa.plan.model import OffsetBounds, Split
from rekappa.replay.closing import reached
from rekappa.replay.exact import recorded_slices
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


def recorded(number: int, end: int) -> dict[str, object]:
    return {"batch": number, "positions": [{"source": "s", "region": "eu", "topic": "t", "ends": {"0": end}}]}


def test_recorded_batches_become_slices_with_the_empty_ones() -> None:
    noon = datetime(2026, 11, 1, 12, tzinfo=UTC)
    file = Split("s", "f", 20, 20, noon, noon, "eu", positions=OffsetBounds(0, 0, 10, 29))
    records = [recorded(n, end) for n, end in [(-1, 0), (0, 10), (1, 20), (2, 20), (3, 30), (4, 30), (5, 40)]]
    slices = recorded_slices(records, [file])
    ranges = [[(o.start, o.end) for o in part.sources["s"].offsets] if part.sources else [] for part in slices]
    assert ranges == [[(10, 20)], [], [(20, 30)], []]
    assert [part.number for part in slices] == [0, 1, 2, 3]


def test_a_hole_in_the_record_is_refused() -> None:
    with pytest.raises(PlanError, match="between 0 and 2"):
        recorded_slices([recorded(0, 1), recorded(2, 3)], [])
    with pytest.raises(PlanError, match="no micro-batches"):
        recorded_slices([], [])
