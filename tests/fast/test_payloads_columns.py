"""Values that were read, as columns: those that do not fit cost their own message and no other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rekappa.sources.payloads.columns import struct_array
from rekappa.sources.payloads.registry import RegistryPlace
from rekappa.sources.payloads.wire import Undecodable

PAYLOAD = StructType(
    [
        StructField("id", LongType()),
        StructField("price", DecimalType(5, 2)),
        StructField("at", TimestampType()),
        StructField("parts", ArrayType(MapType(StringType(), StructType([StructField("n", IntegerType())])))),
    ]
)
AT = datetime(2026, 11, 1, tzinfo=UTC)
NOWHERE = RegistryPlace("http://nobody-asks-it")


@dataclass(frozen=True)
class Numbered:
    """Payloads by their number, the only byte of a message."""

    events: tuple[Mapping[str, Any] | None, ...]
    place: RegistryPlace = NOWHERE

    def values(self, message: bytes, payload: StructType) -> Mapping[str, Any]:
        found = self.events[message[0]]
        if found is None:
            raise Undecodable("broken")
        return found


def read(*events: Mapping[str, Any] | None) -> list[Any]:
    messages = [bytes([number]) for number in range(len(events))]
    rows: list[Any] = struct_array([*messages, None], Numbered(events), PAYLOAD, "why").to_pylist()
    assert set(rows[-1].values()) == {None}
    return rows[:-1]


SOUND: dict[str, Any] = {
    "id": 1,
    "price": Decimal("1.50"),
    "at": AT,
    "parts": [{"x": {"n": 1, "other": 2}}],
    "undeclared": object(),
}


def test_fields_are_found_by_name() -> None:
    assert read(SOUND, {}) == [
        {"id": 1, "price": Decimal("1.50"), "at": AT, "parts": [[("x", {"n": 1})]], "why": None},
        dict.fromkeys([*PAYLOAD.names, "why"]),
    ]


def test_what_does_not_fit_names_its_field() -> None:
    bad: list[dict[str, Any]] = [{"id": "x"}, {"id": 2**63}, {"price": Decimal("1.234")}, {"at": "later"}, {"parts": 3}]
    rows = read(SOUND, None, *(SOUND | one for one in bad), SOUND)
    assert [row["why"] for row in rows] == [
        None,
        "broken",
        "field 'id': 'x' is not bigint",
        f"field 'id': {2**63} is not bigint",
        "field 'price': Decimal('1.234') is not decimal(5,2)",
        "field 'at': 'later' is not timestamp",
        "field 'parts': 3 is not array<map<string,struct<n:int>>>",
        None,
    ]
    assert rows[0] == rows[-1]
    assert all(row["id"] is None for row in rows[1:-1])


@pytest.mark.parametrize(
    ("kind", "fitting", "others"),
    [
        (IntegerType(), [1, 3.0, Decimal("3.00"), None], [1.5, Decimal("1.5"), 1e300, float("nan"), 2**31, True, "1"]),
        (FloatType(), [1.5, 7, 3.4e38, float("inf"), None], [1e300, -3.5e38, True]),
        (DoubleType(), [0.1, 1e300, 7], [2**53 + 1, True, "1"]),
        (DateType(), [AT.date()], [AT, 1, 1.5]),
        (TimestampType(), [AT], [1_700_000_000_000, 1.5, "2026"]),
        (ArrayType(IntegerType()), [[1, None, 2.0]], [[1, 1.5]]),
        (
            MapType(StringType(), StructType().add("n", FloatType())),
            [{"x": {"n": 1.5}}, {"x": None}, {}],
            [{"x": {"n": 1.5}, "y": {"n": 1e39}}],
        ),
    ],
)
def test_no_value_is_changed_to_fit(kind: DataType, fitting: list[Any], others: list[Any]) -> None:
    payload = StructType().add("x", kind)
    events = tuple({"x": value} for value in [*fitting, *others])
    read = struct_array([bytes([number]) for number in range(len(events))], Numbered(events), payload, "why")
    rows: list[Any] = read.to_pylist()
    assert [row["why"] for row in rows[: len(fitting)]] == [None] * len(fitting)
    for row in rows[len(fitting) :]:
        assert row["x"] is None
        assert row["why"].startswith("field 'x': ")
        assert row["why"].endswith(f" is not {kind.simpleString()}")
    alone = struct_array([bytes([number]) for number in range(len(fitting))], Numbered(events), payload, "why")
    assert alone.to_pylist() == rows[: len(fitting)]
