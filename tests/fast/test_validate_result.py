"""The verdict's arithmetic, and its pages: no Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.errors import ValidationError
from rekappa.store.record import Batch, Position
from rekappa.validate.html import page
from rekappa.validate.late import readings
from rekappa.validate.report import percent
from rekappa.validate.result import Cause, Comparison, Rules, Sample, SinkVerdict, Verdict

AT = datetime(2026, 11, 1, tzinfo=UTC)
counts = st.integers(0, 10**9)
texts = st.text(max_size=40)


def verdict(*sinks: SinkVerdict) -> Verdict:
    return Verdict("backfill_1", "rmi", AT, AT + timedelta(hours=1), AT, sinks)


@given(counts, counts, counts, counts, st.floats(0, 100))
def test_passing_is_exact(matched: int, different: int, missing: int, extra: int, threshold: float) -> None:
    found = Comparison(0, 0, matched, different, missing, extra, threshold=threshold)
    assert 0 <= found.match <= 100
    if found.differences and threshold == 100:
        assert not found.passed, "one difference in a billion is not 100 %"
    if not found.differences:
        assert found.passed
    json.dumps(verdict(SinkVerdict("out", "t", found)).as_json())


@given(counts, counts)
def test_a_percentage_never_claims_what_is_not(part: int, rest: int) -> None:
    text = percent(part, part + rest)
    assert ("100.00" in text) == (rest == 0 and part > 0)
    if part:
        assert text != "0.00 %"


def test_every_difference_explained_passes() -> None:
    known = Comparison(0, 0, 9, 0, 0, 1, causes={Cause.LATE: 1})
    assert known.passed
    assert not Comparison(0, 0, 9, 0, 0, 2, causes={Cause.LATE: 1, Cause.UNEXPLAINED: 1}).passed
    assert not verdict(SinkVerdict("a", "t", known), SinkVerdict("b", "kafka", None, "can't be read")).passed
    assert not verdict().passed


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@given(texts, texts, texts, counts)
def test_the_page_escapes_everything_and_loads_nothing(name: str, value: str, note: str, count: int) -> None:
    evil = f"<script>alert(1)</script>{value}"
    sample = Sample("different", Cause.UNEXPLAINED, (evil,), {"id": 1, evil: evil}, {"id": 1, evil: None})
    found = Comparison(
        count, count, count, 1, 0, 0, ("id",), {evil: 1}, {Cause.UNEXPLAINED: 1}, samples=(sample,), notes=(note,)
    )
    html = page(verdict(SinkVerdict(name, evil, found), SinkVerdict(evil, "kafka", None, evil)))
    tags = _Tags()
    tags.feed(html)
    assert "script" not in {tag for tag, _ in tags.seen}
    assert not [attrs for _, attrs in tags.seen if {"src", "href", "onload"} & set(attrs)]
    assert "alert(1)" in tags.text


@pytest.mark.parametrize("bad", [{"threshold": -1}, {"threshold": 101}, {"absolute": -1.0}, {"relative": float("nan")}])
def test_wrong_numbers_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Rules(key=("id",), **bad)  # type: ignore[arg-type]


def test_a_tolerance_needs_a_key() -> None:
    with pytest.raises(ValidationError, match="no key"):
        Rules(relative=0.1)


@given(st.lists(st.lists(st.integers(0, 50), min_size=2, max_size=2), min_size=1, max_size=20))
def test_readings_cover_what_production_read_once(steps: list[list[int]]) -> None:
    ends, batches = [0, 0], [Batch("r", "q", -1, (Position("s", "eu", "t", {0: 0, 1: 0}),), None, AT)]
    for number, step in enumerate(steps):
        ends = [end + more for end, more in zip(ends, step, strict=True)]
        mark = AT + timedelta(minutes=number)
        positions = (Position("s", "eu", "t", dict(enumerate(ends))), Position("other", "eu", "u", {0: 1}))
        batches.append(Batch("r", "q", number, positions, mark, AT))
    found = readings(reversed(batches), "s")
    for partition in (0, 1):
        mine = [one for one in found if one.partition == partition]
        assert [one.start for one in mine] == [0, *(one.end for one in mine)][: len(mine)]
        assert sum(one.end - one.start for one in mine) == ends[partition]
    assert {one.topic for one in found} <= {"t"}
