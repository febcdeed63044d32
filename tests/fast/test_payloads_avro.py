"""Avro records across versions of their schema."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from fastavro import schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from rekappa.sources.payloads.avro import parsed, record, with_defaults
from rekappa.sources.payloads.bounds import DEEPEST, MOST_EMPTY, Writer
from rekappa.sources.payloads.registry import Reference, Schema
from rekappa.sources.payloads.wire import Undecodable


def schema(*fields: Any, name: str = "Order", **more: Any) -> Any:
    text = json.dumps({"type": "record", "name": name, "fields": list(fields), **more})
    return parsed(Schema(1, "AVRO", text), {})


def written(kind: Any, value: Any) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, kind, value)
    return out.getvalue()


ID = {"name": "id", "type": "long"}
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "string": st.text(),
    "boolean": st.booleans(),
    "bytes": st.binary(),
}
WIDER = {"int": ["int", "long", "double"], "long": ["long", "double"]}


@st.composite
def versions(draw: st.DrawFn) -> tuple[Any, Any, dict[str, Any], dict[str, Any]]:
    """A writer's and a reader's schema, a record of the one, and what the other makes of it."""
    wrote: list[Any] = []
    reads: list[Any] = []
    value: dict[str, Any] = {}
    expected: dict[str, Any] = {}
    for number in range(draw(st.integers(1, 6))):
        name, kind = f"f{number}", draw(st.sampled_from(sorted(KINDS)))
        content = draw(KINDS[kind])
        fate = draw(st.sampled_from(["kept", "removed", "added", "renamed", "optional", "widened"]))
        if fate != "added":
            wrote.append({"name": name, "type": kind})
            value[name] = content
        if fate == "removed":
            continue
        if fate == "added":
            default = None if kind == "bytes" else content
            reads.append(
                {"name": name, "type": [kind, "null"] if default is not None else ["null", kind], "default": default}
            )
            expected[name] = default
        elif fate == "renamed":
            reads.append({"name": f"new_{name}", "type": kind, "aliases": [name]})
            expected[f"new_{name}"] = content
        elif fate == "optional":
            reads.append({"name": name, "type": ["null", kind], "default": None})
            expected[name] = content
        else:
            wide = draw(st.sampled_from(WIDER.get(kind, [kind]))) if fate == "widened" else kind
            reads.append({"name": name, "type": wide})
            expected[name] = content if wide == kind else float(content) if wide == "double" else content
    order = draw(st.permutations(reads))
    return schema(*wrote), with_defaults(schema(*order)), value, expected


@given(versions())
def test_a_record_of_any_version_is_read_as_the_declared_one(made: tuple[Any, Any, Any, Any]) -> None:
    writer, reader, value, expected = made
    assert record(written(writer, value), Writer.of(writer), reader, "schema 1") == expected


def test_defaults_are_values_of_their_types() -> None:
    reader = with_defaults(
        schema(
            ID,
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 1000},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 1},
            {"name": "raw", "type": "bytes", "default": "\u00ff"},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
                "default": "\u0001\u0000",
            },
        )
    )
    writer = schema(ID)
    assert record(written(writer, {"id": 1}), Writer.of(writer), reader, "s") == {
        "id": 1,
        "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "day": date(1970, 1, 2),
        "raw": b"\xff",
        "price": Decimal("2.56"),
    }


def test_what_avro_does_not_resolve_is_refused() -> None:
    writer = schema(ID)
    for field in ({"name": "id", "type": "boolean"}, {"name": "more", "type": "string"}):
        with pytest.raises(Undecodable, match="not a record of schema 7"):
            record(written(writer, {"id": 1}), Writer.of(writer), schema(field), "schema 7")


@given(st.binary(max_size=40))
def test_no_bytes_break_it(body: bytes) -> None:
    writer = schema(ID, {"name": "tags", "type": {"type": "array", "items": "string"}}, {"name": "s", "type": "string"})
    try:
        found = record(body, Writer.of(writer), None, "schema 1")
    except Undecodable:
        return
    assert record(written(writer, found), Writer.of(writer), None, "schema 1") == found


def test_bytes_behind_a_record_are_no_record() -> None:
    writer = schema(ID)
    with pytest.raises(Undecodable, match="3 bytes follow it"):
        record(written(writer, {"id": 1}) + b"xyz", Writer.of(writer), None, "schema 1")


def test_logical_types_without_a_column_are_kept_as_they_are_stored() -> None:
    writer = schema({"name": "u", "type": {"type": "string", "logicalType": "uuid"}})
    text = "7c4fd4b5-6c0e-4f3b-8f0a-0a1c0ffee000"
    assert record(written(writer, {"u": text}), Writer.of(writer), None, "s") == {"u": text}


def test_a_schema_that_builds_on_another() -> None:
    money = json.dumps(
        {"type": "record", "name": "Money", "namespace": "a", "fields": [{"name": "cents", "type": "long"}]}
    )
    order = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "price", "type": "a.Money"}]})
    made = parsed(Schema(2, "AVRO", order, (Reference("a.Money", "money", 1),)), {"a.Money": Schema(1, "AVRO", money)})
    assert record(written(made, {"price": {"cents": 5}}), Writer.of(made), None, "s") == {"price": {"cents": 5}}


LIST = schema(ID, {"name": "next", "type": ["null", "Order"]})
"""A record that may hold one of its own kind."""


def linked(length: int) -> bytes:
    return b"\x02\x02" * (length - 1) + b"\x02\x00"


def test_a_record_inside_itself_has_an_end() -> None:
    writer, links = Writer.of(LIST), 0
    found: Any = record(linked(DEEPEST), writer, None, "s")
    while found is not None:
        found, links = found["next"], links + 1
    assert links == DEEPEST
    for length in (DEEPEST + 1, 200_000):
        with pytest.raises(Undecodable, match=f"not a record of s: it is nested more than {DEEPEST} deep"):
            record(linked(length), writer, None, "s")


def test_a_record_that_is_nothing_but_itself_is_refused() -> None:
    for inside in ("Order", {"type": "array", "items": "Order"}):
        writer = Writer.of(schema({"name": "next", "type": inside}))
        assert writer.open_ended
        with pytest.raises(Undecodable, match=r"nested|too early"):
            record(b"\x02" * 1000, writer, None, "s")


@pytest.mark.parametrize(
    "item", ["null", {"type": "record", "name": "Nothing", "fields": []}, {"type": "fixed", "name": "F", "size": 0}]
)
def test_items_that_take_no_bytes_are_counted_first(item: Any) -> None:
    writer = Writer.of(schema({"name": "all", "type": {"type": "array", "items": item}}))
    few = record(
        written(writer.schema, {"all": [b"" if "fixed" in str(item) else {} if item != "null" else None] * 9}),
        writer,
        None,
        "s",
    )
    assert len(few["all"]) == 9
    for blocks in (b"\x80\xa8\xd6\xb9\x07\x00", b"\x80\x50\x80\x50\x00", b"\xff\xa7\xd6\xb9\x07\x00\x00"):
        body = b"\x80\x7d" + blocks  # eight thousand, and more
        with pytest.raises(Undecodable, match=r"it asks for \d+ items that take no bytes"):
            record(body, writer, None, "s")
    assert MOST_EMPTY < 8000 + 2 * 5120


def test_a_number_is_of_ten_bytes_at_most() -> None:
    writer = Writer.of(schema(ID))
    assert not writer.open_ended
    assert record(b"\xff" * 9 + b"\x01", writer, None, "s") == {"id": -(2**63)}
    with pytest.raises(Undecodable, match="a number in it is longer than 10 bytes"):
        record(b"\xff" * 30 + b"\x01", writer, None, "s")


@given(versions(), st.text("\u65e5\u672c", min_size=4))
def test_text_that_looks_like_a_long_number_is_text(made: tuple[Any, Any, Any, Any], text: str) -> None:
    inner, _, value, _ = made
    longer = Writer.of(
        schema({"name": "text", "type": ["null", "string"]}, {"name": "rest", "type": inner}, name="Outer")
    )
    whole = {"text": text, "rest": value}
    body = written(longer.schema, whole)
    assert record(body, replace(longer, open_ended=True), None, "s") == record(body, longer, None, "s") == whole


def test_a_text_that_is_no_schema_costs_its_messages_only() -> None:
    for text in ("{", "nope", "[" * 100_000, "{}", '{"type": "record"}', "7", '"Unheard"'):
        with pytest.raises(Undecodable, match="its schema can't be read"):
            parsed(Schema(1, "AVRO", text), {})
