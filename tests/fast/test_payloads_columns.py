"""Values that were read, as columns: those that do not fit cost their own message and no other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rekappa.sources.payloads.columns import struct_array
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


@dataclass(frozen=True)
class Numbered:
    """Payloads by their number, the only byte of a message."""

    events: tuple[Mapping[str, Any] | None, ...]

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
