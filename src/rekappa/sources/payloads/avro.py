"""Avro records, read as the schemas that wrote them say, resolved to the one that the source declares.

With an .avsc as the declared schema Avro's own resolution holds: a field that the writer lacks has its default, one
that only the writer has is left out, an alias finds a field under its old name, numbers widen. With DDL, fields are
found by their names, and one that the writer lacks is null.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from rekappa.config.avro import LOGICAL
from rekappa.sources.payloads.bounds import Writer
from rekappa.sources.payloads.packages import package
from rekappa.sources.payloads.registry import RegistryPlace, Schema, look_up, referenced
from rekappa.sources.payloads.wire import Undecodable, unframed
from rekappa.timeline import EPOCH

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_SECONDS = {"millis": timedelta(milliseconds=1), "micros": timedelta(microseconds=1)}


@dataclass(frozen=True, slots=True)
class AvroPayload:
    """`reader` is the declared schema (JSON) to resolve to, None to find fields by their names."""

    place: RegistryPlace
    reader: str | None

    def values(self, message: bytes, _: StructType) -> Mapping[str, Any]:
        schema_id, body = unframed(message)
        return record(body, _writer(self.place, schema_id), _reader(self.reader), f"schema {schema_id}")


def record(body: bytes, writer: Writer, reader: Any, name: str) -> Mapping[str, Any]:
    """One record, of parsed schemas; raises `Undecodable`."""
    source = io.BytesIO(body)
    try:
        writer.check(body)
        found = package("fastavro").schemaless_reader(source, writer.schema, reader)
    except Exception as error:
        # Bytes that are no record of the schema fail in as many ways as there are types.
        what = "it ends too early" if isinstance(error, EOFError | IndexError) else str(error)
        raise Undecodable(f"not a record of {name}: {what}") from None
    if source.tell() != len(body):
        raise Undecodable(f"not a record of {name}: {len(body) - source.tell()} bytes follow it")
    if not isinstance(found, dict):
        raise Undecodable(f"{name} is no record")
    return cast("Mapping[str, Any]", found)


def parsed(schema: Schema, builds_on: Mapping[str, Schema]) -> Any:
    """The schema as fastavro takes it, with all that it builds on."""
    named: dict[str, Any] = {}
    for one in builds_on.values():
        _parsed(one.text, named)
    return _parsed(schema.text, named)


@cache
def _writer(place: RegistryPlace, schema_id: int) -> Writer:
    schema = look_up(place, schema_id, "AVRO")
    return Writer.of(parsed(schema, referenced(place, schema)))


@cache
def _reader(text: str | None) -> Any:
    if text is None:
        return None
    return with_defaults(_parsed(text, {}))


def _parsed(text: str, named: dict[str, Any]) -> Any:
    fastavro = package("fastavro")
    try:
        return fastavro.parse_schema(_plain(json.loads(text)), named_schemas=named)
    except Exception as error:
        # A registry may hold any text under an id, and each fails in its own way: no JSON, no name, no end.
        raise Undecodable(f"its schema can't be read: {error}") from None


def _plain(schema: Any) -> Any:
    """Without logical types that have no column: their values are kept as they are stored."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kind, logical = schema.get("type"), schema.get("logicalType")
    known = logical == "decimal" or (isinstance(kind, str) and (kind, logical) in LOGICAL and logical != "uuid")
    inside = {
        key: _plain(value) if key in ("type", "items", "values", "fields") else value for key, value in schema.items()
    }
    return inside if known else {key: value for key, value in inside.items() if key != "logicalType"}


def with_defaults(schema: Any) -> Any:
    """The parsed schema with defaults as values of their types, not as the JSON that stands for them."""
    if isinstance(schema, list):
        return [with_defaults(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    for key in ("items", "values", "type"):
        if isinstance(schema.get(key), dict | list):
            schema[key] = with_defaults(schema[key])
    for field in schema.get("fields", ()):
        field["type"] = with_defaults(field["type"])
        if "default" in field:
            field["default"] = _value(field["type"], field["default"])
    return schema


def _value(kind: Any, default: Any) -> Any:
    kind = kind[0] if isinstance(kind, list) else kind
    stored, logical = (kind.get("type"), kind.get("logicalType")) if isinstance(kind, dict) else (kind, None)
    if stored in ("bytes", "fixed") and isinstance(default, str):
        raw = default.encode("latin-1")
        if logical != "decimal":
            return raw
        return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-kind.get("scale", 0))
    if logical == "date":
        return date(1970, 1, 1) + timedelta(days=default)
    if isinstance(logical, str) and "timestamp-" in logical:
        moment = EPOCH + default * _SECONDS[logical.rpartition("-")[2]]
        return moment.replace(tzinfo=None) if logical.startswith("local") else moment.astimezone(UTC)
    if stored == "record" and isinstance(default, dict):
        return {f["name"]: _value(f["type"], default[f["name"]]) for f in kind["fields"] if f["name"] in default}
    return default
