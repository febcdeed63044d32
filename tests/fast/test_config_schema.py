"""Payload schemas: Spark DDL, .ddl files, .avsc files, and Avro made from DDL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekappa.config import avro, ddl
from rekappa.config.ddl import Array, Column, Decimal, Map, Simple, Struct, Type
from rekappa.config.model import Source
from rekappa.config.schema import avro_schema, column_type, payload_columns
from rekappa.errors import ConfigError


def source(schema: Any, **more: Any) -> Source:
    candidates = {"live": {"type": "kafka", "topic": "t"}}
    return Source.model_validate({"schema": schema, "event_time": "ts", "candidates": candidates, **more})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("id BIGINT, ts TIMESTAMP", "id BIGINT, ts TIMESTAMP"),
        (" id long NOT NULL comment 'it''s, <the> key' ,\n ts timestamp_ltz ", "id BIGINT, ts TIMESTAMP"),
        ("a array<struct<x:int,`y z`: map<string,double>>>", "a ARRAY<STRUCT<x: INT, `y z`: MAP<STRING, DOUBLE>>>"),
        ("p decimal(12,2), q numeric, r varchar(10)", "p DECIMAL(12, 2), q DECIMAL(10, 0), r STRING"),
        ("`odd``name` STRING", "`odd``name` STRING"),
        ("e STRUCT<>", "e STRUCT<>"),
    ],
)
def test_ddl_is_read_and_written(text: str, wanted: str) -> None:
    assert ddl.written(ddl.columns(text)) == wanted
    assert ddl.columns(wanted) == ddl.columns(text)


@pytest.mark.parametrize(
    "text",
    ["", "id", "id,", "id BIGINT ts TIMESTAMP", "id BIGINT,", "id ARRAY<", "id ARRAY<INT", "id MAP<INT>", "1 ! 2",
     "id INT, ID INT", "id DECIMAL(50,2)", "id DECIMAL(2,5)", "a " + "ARRAY<" * 60, "id STRUCT<a INT b INT>"],
)  # fmt: skip
def test_broken_ddl_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="Cannot read the schema"):
        ddl.columns(text)


simple = st.sampled_from(
    ["BOOLEAN", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "STRING"]
)
names = st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True)


def columns_of(inner: st.SearchStrategy[Type], least: int = 0) -> st.SearchStrategy[tuple[Column, ...]]:
    return st.dictionaries(names, inner, min_size=least, max_size=4).map(
        lambda found: tuple(Column(name, kind) for name, kind in found.items())
    )


types: st.SearchStrategy[Type] = st.recursive(
    simple.map(Simple) | st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: Decimal(p, s))),
    lambda inner: inner.map(Array) | inner.map(lambda v: Map(Simple("STRING"), v)) | columns_of(inner, 1).map(Struct),
    max_leaves=6,
)


@given(columns_of(types, 1))
@settings(max_examples=100, deadline=None)
def test_ddl_and_avro_keep_every_column(found: tuple[Column, ...]) -> None:
    assert ddl.columns(ddl.written(found)) == found
    assert avro.columns_of(json.dumps(avro.schema_of(found, "Event")), "made.avsc") == found


@given(st.text(alphabet="abIN <>(),:`'1_\"T\n", max_size=40))
@settings(max_examples=150, deadline=None)
def test_any_text_is_a_schema_or_refused(text: str) -> None:
    try:
        found = ddl.columns(text)
    except ConfigError:
        return
    assert ddl.columns(ddl.written(found)) == found


RECORD = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "ts", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": [{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "null"]},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": ["null", "string"]}}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A"]}},
        {"name": "other", "type": ["null", "Kind"]},
        {"name": "place", "type": {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "double"}]}},
        {"name": "back", "type": "shop.Place"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 8}},
        {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
RECORD_DDL = (
    "id BIGINT, ts TIMESTAMP, day DATE, price DECIMAL(9, 2), tags MAP<STRING, ARRAY<STRING>>, kind STRING, "
    "other STRING, place STRUCT<x: DOUBLE>, back STRUCT<x: DOUBLE>, hash BINARY, uid STRING"
)


def test_files_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(RECORD, indent=2))
    (tmp_path / "order.ddl").write_text("id BIGINT,\n ts TIMESTAMP\n")
    from_avro = source({"file": "order.avsc"}, format="avro")
    assert ddl.written(payload_columns(from_avro, tmp_path)) == RECORD_DDL
    assert json.loads(avro_schema(from_avro, tmp_path)) == RECORD
    assert ddl.written(payload_columns(source({"file": "order.ddl"}), tmp_path)) == "id BIGINT, ts TIMESTAMP"


def test_avro_from_ddl_is_nullable_throughout(tmp_path: Path) -> None:
    made = json.loads(avro_schema(source("id BIGINT, ts TIMESTAMP, at STRUCT<x: DOUBLE>", format="avro"), tmp_path))
    assert made["fields"][1]["type"] == ["null", {"type": "long", "logicalType": "timestamp-micros"}]
    assert made["fields"][2]["type"][1]["name"] == "Event_at"
    with pytest.raises(ConfigError, match="keys of a map"):
        avro_schema(source("m MAP<INT, INT>"), tmp_path)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (["int", "string"], "union of"),
        (["null"], "union of"),
        ("Missing", "unknown type"),
        ("R", "inside itself"),
        ({"type": "int", "logicalType": "time-millis"}, "time-millis"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 99}, "precision 99"),
        ({"kind": "int"}, "no type"),
        ({"type": "array"}, "no type"),
        ({"type": "record", "name": "X"}, "no list of fields"),
        (7, "no type"),
    ],
)
def test_avro_that_has_no_column_is_refused(tmp_path: Path, kind: Any, words: str) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "odd", "type": kind}]}
    (tmp_path / "r.avsc").write_text(json.dumps(schema))
    with pytest.raises(ConfigError, match=words) as caught:
        payload_columns(source({"file": "r.avsc"}), tmp_path)
    assert "r.avsc" in caught.value.message


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("a.avsc", "{\n\n nope", "a.avsc:3"),
        ("a.avsc", '"string"', "must be a record"),
        ("a.txt", "id INT", "Cannot use schema file"),
        ("a.ddl", "id WHAT", "a.ddl"),
        ("a.ddl", "__metadata__ INT", "rekappa's own"),
    ],
)
def test_bad_schema_files_are_named(tmp_path: Path, file: str, text: str, words: str) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(ConfigError, match=words):
        payload_columns(source({"file": file}), tmp_path)


def test_nested_event_time() -> None:
    found = ddl.columns("body STRUCT<ts: TIMESTAMP>, `a.b` INT")
    assert str(column_type(found, "body.TS")) == "TIMESTAMP"
    assert column_type(found, "a.b") is not None
    assert column_type(found, "body.other") is None
    assert column_type(found, "ts") is None
