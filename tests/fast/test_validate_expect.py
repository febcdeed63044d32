"""Expectations: what is written is what is meant, and nothing that was not said is expected."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.errors import ValidationError
from rekappa.expect import CodeChange, Expectation, parse_expectation

names = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="*?["), min_size=1, max_size=8)
rows = st.integers(0, 1000)
changes = st.builds(
    CodeChange,
    st.dictionaries(st.lists(names, min_size=1, max_size=3, unique=True).map(tuple), st.integers(1, 100), max_size=3),
    rows,
    rows,
)


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


@given(st.lists(names, min_size=1, max_size=4), rows, rows)
def test_what_is_written_is_read(columns: list[str], missing: int, extra: int) -> None:
    text = f"changed={','.join(map(quoted, columns))},missing={missing},extra<={extra}"
    found = parse_expectation(text)
    assert found.columns == tuple(columns)
    assert found.missing.allows(missing, 10_000)
    assert not found.missing.allows(missing + 1, 10_000)
    assert found.extra.allows(0, 10_000)
    assert not found.extra.allows(extra + 1, 10_000)


@given(changes, st.integers(0, 10_000))
def test_exactly_what_happened_is_no_surprise_and_less_is(change: CodeChange, total: int) -> None:
    columns = sorted({name for changed in change.changed for name in changed})
    parts = [f"changed={quoted(name)}" for name in columns]
    text = ",".join([*parts, f"missing={change.missing}", f"extra={change.extra}"])
    assert parse_expectation(text).surprises(change, total) == []
    assert parse_expectation("changed=*,missing=*,extra=*").surprises(change, total) == []
    assert bool(Expectation().surprises(change, total)) == (change.rows > 0)
    for left_out in columns:
        kept = ",".join(f"changed={quoted(name)}" for name in columns if name != left_out)
        told = parse_expectation(f"{kept},missing=*,extra=*" if kept else "missing=*,extra=*")
        assert told.surprises(change, total), "a column that was not named changed"


@given(rows, st.integers(1, 1000), st.integers(0, 100))
def test_a_share_is_exact(changed: int, total: int, share: int) -> None:
    change = CodeChange({("a",): changed} if changed else {})
    surprised = bool(parse_expectation(f"changed<={share}%").surprises(change, total))
    assert surprised == (100 * changed > share * total)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ValidationError):
        assert parse_expectation(text).text == text


def test_patterns_limits_and_what_they_mean() -> None:
    found = parse_expectation("changed=play*, changed<=5%, extra<=10")
    assert found.surprises(CodeChange({("playback_id", "plays"): 5}, 0, 10), 100) == []
    assert found.surprises(CodeChange({("playback_id", "show_id"): 5}), 100) == ["5 rows changed in show_id"]
    assert found.surprises(CodeChange({("plays",): 6}), 100) == ["6 rows changed, expected at most 5 %"]
    assert found.surprises(CodeChange(missing=1), 100) == ["1 rows missing, expected at most 0"]
    assert parse_expectation("changed=a,b,missing=0").columns == ("a", "b")
    assert parse_expectation("changed=0").surprises(CodeChange({("a",): 1}), 10)
    assert parse_expectation("changed=3").surprises(CodeChange({("a",): 3}), 10) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nope=1",
        "missing=many",
        "missing",
        "changed>5",
        "missing=1,missing=2",
        "missing=0,missing=*",
        "extra=-1",
        "a,b",
        "changed=",
    ],
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        parse_expectation(text)
