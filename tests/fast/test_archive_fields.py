"""Messages that the schema does not fit: which field, and why."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekappa.archive.fields import fits, kind, merged, misfits, reason, unknown_fields

COLUMNS = {
    "id": "bigint",
    "small": "int",
    "name": "string",
    "at": "timestamp",
    "ok": "boolean",
    "tags": "array<string>",
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (None, "null value"),
        (b"  ", "empty value"),
        (b"\xff\xfe{", "not UTF-8 text"),
        (b"{nope", "not JSON: Expecting property name"),
        (b"[1, 2]", "not a JSON object: [1, 2]"),
        (b'{"id": "x"}', "field 'id': \"x\" is not bigint"),
        (b'{"at": "2026-11-01T00:00:00Z", "id": 1.5}', "field 'id': 1.5 is not bigint"),
        (b'{"id": 9223372036854775808}', "field 'id': 9223372036854775808 is not bigint"),
        (b'{"small": 2147483648}', "field 'small': 2147483648 is not int"),
        (b'{"at": "yesterday"}', "field 'at': \"yesterday\" is not timestamp"),
        (b'{"ok": 1}', "field 'ok': 1 is not boolean"),
        (b'{"tags": {"a": 1}}', "field 'tags': {\"a\": 1} is not array<string>"),
        (b'{"id": 1}', "does not fit the schema"),
    ],
)
def test_the_reason_names_the_field(message: bytes | None, expected: str) -> None:
    assert reason(message, COLUMNS).startswith(expected)


@given(st.dictionaries(st.text(min_size=1), VALUES))
def test_every_unknown_field_gets_a_type_that_holds_it(event: dict[str, object]) -> None:
    message = json.dumps(event).encode()
    found = unknown_fields(message, frozenset({"id"}))
    assert set(found) == {name for name, value in event.items() if value is not None and name != "id"}
    assert misfits(message, found) == []


@given(st.binary())
def test_any_bytes_have_a_reason(message: bytes) -> None:
    assert reason(message, COLUMNS)
    unknown_fields(message, frozenset())
    misfits(message, COLUMNS)


@given(st.sets(st.sampled_from(["boolean", "bigint", "double", "string"]), min_size=1))
def test_a_merged_type_holds_them_all(kinds: set[str]) -> None:
    assert all(fits(one, merged(kinds)) for one in kinds)


def test_types() -> None:
    assert [kind(value) for value in (None, True, 1, 2**63, 1.5, "x", [1], {"a": 1})] == [
        None, "boolean", "bigint", "string", "double", "string", "string", "string",
    ]  # fmt: skip
    assert misfits(b'{"new": "x", "id": 1}', {"new": "bigint"}) == ["field 'new': \"x\" is not bigint"]
