"""Protobuf messages by the schema that wrote them, as columns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rekappa.sources.payloads.protobuf import fields, message_class
from rekappa.sources.payloads.registry import Reference, Schema
from rekappa.sources.payloads.wire import Undecodable

MONEY = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'
ORDER = """
syntax = "proto3";
package shop;
import "shop/money.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Status { NEW = 0; PAID = 1; }
message Ignored { message Deep { string word = 1; } }
message Order {
  int64 id = 1;
  optional string note = 2;
  Money price = 3;
  google.protobuf.Timestamp at = 4;
  google.protobuf.StringValue coupon = 5;
  Status status = 6;
  repeated string tags = 7;
  map<string, Money> parts = 8;
  bytes raw = 9;
  oneof way { string post = 10; int32 shop = 11; }
}
"""
TEXT, CENTS = StringType(), StructType().add("cents", LongType())
COLUMNS = {
    "id": LongType(), "note": TEXT, "price": CENTS, "at": TimestampType(), "coupon": TEXT, "status": TEXT,
    "tags": ArrayType(TEXT), "parts": MapType(TEXT, CENTS), "raw": BinaryType(), "post": TEXT, "shop": IntegerType(),
    "unheard_of": TEXT,
}  # fmt: skip


def kind(*steps: int, text: str = ORDER) -> Any:
    schema = Schema(2, "PROTOBUF", text, (Reference("shop/money.proto", "money", 1),))
    return message_class(schema, {"shop/money.proto": Schema(1, "PROTOBUF", MONEY)}, steps)


def payload(columns: dict[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_every_kind_of_field() -> None:
    order = kind(1)(id=7, status=1, tags=["a", "b"], raw=b"\0", shop=0)
    order.price.cents = 5
    order.at.FromDatetime(datetime(2026, 11, 1, tzinfo=UTC))
    order.coupon.value = "half"
    order.parts["x"].cents = 1
    read = kind(1).FromString(order.SerializeToString())
    assert fields(read, payload(COLUMNS)) == {
        "id": 7,
        "note": None,
        "price": {"cents": 5},
        "at": datetime(2026, 11, 1, tzinfo=UTC),
        "coupon": "half",
        "status": "PAID",
        "tags": ["a", "b"],
        "parts": {"x": {"cents": 1}},
        "raw": b"\0",
        "post": None,
        "shop": 0,
        "unheard_of": None,
    }
    assert fields(read, payload({"status": IntegerType()})) == {"status": 1}


def test_what_is_not_set_is_zero_or_null() -> None:
    read = fields(kind(1)(), payload(COLUMNS))
    assert {name: value for name, value in read.items() if value is not None} == {
        "id": 0, "status": "NEW", "tags": [], "parts": {}, "raw": b"",
    }  # fmt: skip


def test_types_inside_types() -> None:
    assert fields(kind(0, 0)(word="w"), payload({"word": TEXT})) == {"word": "w"}
    for steps in ((2,), (0, 1), (1, 0, 0)):
        with pytest.raises(Undecodable, match=rf"schema 2 has no message type at {'.'.join(map(str, steps))}"):
            kind(*steps)


def test_a_number_that_the_enum_does_not_name_and_columns_that_do_not_fit() -> None:
    order = kind(1)(status=9)
    order.price.cents = 1
    assert fields(order, payload({"status": TEXT})) == {"status": "9"}
    for name in ("price", "tags", "parts"):
        with pytest.raises(Undecodable, match=f"field '{name}'"):
            fields(order, payload({name: TEXT}))


def test_versions_are_read_by_name() -> None:
    older = kind(0, text='syntax = "proto3"; message Order { int64 id = 1; string gone = 2; }')
    assert fields(older(id=1, gone="x"), payload({"id": LongType(), "note": TEXT})) == {"id": 1, "note": None}


def test_a_schema_that_the_compiler_refuses() -> None:
    with pytest.raises(Undecodable, match="compiler refuses"):
        kind(0, text="message {")
