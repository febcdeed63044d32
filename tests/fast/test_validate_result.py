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
from rekappa.expect import CodeChange, parse_expectation
from rekappa.validate.html import page
from rekappa.validate.report import percent
from rekappa.validate.result import (
    Cause,
    Comparison,
    Late,
    Outcome,
    Rules,
    Sample,
    SinkVerdict,
    Verdict,
    judge,
    outcome_of,
)

AT = datetime(2026, 11, 1, tzinfo=UTC)
counts = st.integers(0, 10**9)
texts = st.text(max_size=40)


def verdict(*sinks: SinkVerdict) -> Verdict:
    return Verdict("backfill_1", "rmi", AT, AT + timedelta(hours=1), AT, sinks)


causes = st.dictionaries(st.sampled_from(Cause), st.integers(1, 10**9))


@given(counts, causes, st.sampled_from(Late), st.booleans())
def test_what_passes(matched: int, known: dict[Cause, int], late: Late, told: bool) -> None:
    """Whatever the numbers: one row that is unexplained, not final or lost by the backfill fails it."""
    found = Comparison(0, 0, matched, sum(known.values()), 0, 0, causes=known, code=CodeChange({("a",): 1}))
    expected = parse_expectation("changed=a") if told else None
    outcome, why = judge(found, expected, late)
    bad = {Cause.UNEXPLAINED, Cause.NOT_FINAL, Cause.LATE_IN_BACKFILL} | ({Cause.LATE} if late is Late.DROP else set())
    if bad & set(known):
        assert outcome is Outcome.FAILED
    elif (Cause.CODE in known and not told) or Cause.LOOKUP in known:
        assert outcome is Outcome.NEEDS_YES
    else:
        assert outcome is Outcome.PASSED
    assert bool(why) == (outcome is not Outcome.PASSED)
    assert judge(found, parse_expectation("changed=b"), late)[0] is Outcome.FAILED or Cause.CODE not in known
    stored = json.loads(json.dumps(verdict(SinkVerdict("out", "t", found, outcome, why)).as_json()))
    assert outcome_of(stored) is outcome


def test_a_difference_without_a_cause_is_unexplained() -> None:
    assert judge(Comparison(0, 0, 10**9, 1, 0, 0), None, Late.KEEP)[0] is Outcome.FAILED
    assert judge(Comparison(0, 0, 9, 0, 0, 2, causes={Cause.LATE: 1}), None, Late.KEEP)[0] is Outcome.FAILED
    assert judge(Comparison(0, 0, 9, 0, 0, 0), None, Late.KEEP) == (Outcome.PASSED, ())


@given(counts, counts)
def test_a_percentage_never_claims_what_is_not(part: int, rest: int) -> None:
    text = percent(part, part + rest)
    assert ("100.00" in text) == (rest == 0 and part > 0)
    if part:
        assert text != "0.00 %"


def test_a_run_is_as_good_as_its_worst_sink() -> None:
    passed, asked, failed = (SinkVerdict(str(one), "t", None, one) for one in Outcome)
    assert verdict(passed).outcome is Outcome.PASSED
    assert verdict(passed, asked).outcome is Outcome.NEEDS_YES
    assert verdict(passed, asked, failed).outcome is Outcome.FAILED
    assert verdict().outcome is Outcome.FAILED
    assert outcome_of(None) is None
    assert outcome_of({"passed": True}) is None


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@given(texts, texts, texts, counts, st.sampled_from(Cause))
def test_the_page_escapes_everything_and_loads_nothing(
    name: str, value: str, note: str, count: int, cause: Cause
) -> None:
    evil = f"<script>alert(1)</script>{value}"
    sample = Sample("different", cause, (evil,), {"id": 1, evil: evil}, {"id": 1, evil: None})
    found = Comparison(
        count, count, count, 1, 0, 0, ("id",), {evil: 1}, {cause: 1}, samples=(sample,), notes=(note, evil),
        special={evil: evil}, controls=(evil,),
    )  # fmt: skip
    one = SinkVerdict(name, evil, found, Outcome.FAILED, (evil,), expected=evil)
    html = page(verdict(one, SinkVerdict(evil, "kafka", None, Outcome.NEEDS_YES, (evil,))))
    tags = _Tags()
    tags.feed(html)
    assert "script" not in {tag for tag, _ in tags.seen}
    assert not [attrs for _, attrs in tags.seen if {"src", "href", "onload"} & set(attrs)]
    assert "alert(1)" in tags.text
    assert cause in tags.text


@pytest.mark.parametrize("bad", [{"absolute": -1.0}, {"relative": float("nan")}])
def test_wrong_numbers_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Rules(key=("id",), **bad)  # type: ignore[arg-type]


def test_a_tolerance_needs_a_key() -> None:
    with pytest.raises(ValidationError, match="no key"):
        Rules(relative=0.1)
