"""Avro schemas and Spark columns, each from the other, without Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from rekappa.config.ddl import MAX_DEPTH, Array, Column, Decimal, Map, Simple, Struct, Type
from rekappa.errors import ConfigError

_FROM = {
    "boolean": "BOOLEAN", "int": "INT", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
    "bytes": "BINARY", "string": "STRING", "enum": "STRING", "fixed": "BINARY",
}  # fmt: skip
LOGICAL = {
    ("long", "timestamp-millis"): "TIMESTAMP",
    ("long", "timestamp-micros"): "TIMESTAMP",
    ("long", "local-timestamp-millis"): "TIMESTAMP_NTZ",
    ("long", "local-timestamp-micros"): "TIMESTAMP_NTZ",
    ("int", "date"): "DATE",
    ("string", "uuid"): "STRING",
}
_TO: dict[str, Any] = {
    "BOOLEAN": "boolean", "TINYINT": "int", "SMALLINT": "int", "INT": "int", "BIGINT": "long", "FLOAT": "float",
    "DOUBLE": "double", "STRING": "string", "BINARY": "bytes",
    "DATE": {"type": "int", "logicalType": "date"},
    "TIMESTAMP": {"type": "long", "logicalType": "timestamp-micros"},
    "TIMESTAMP_NTZ": {"type": "long", "logicalType": "local-timestamp-micros"},
}  # fmt: skip
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")


def columns_of(text: str, file: str) -> tuple[Column, ...]:
    """The columns of an Avro record schema; refuses with `ConfigError` what Spark has no column for."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        place = f"{file}:{error.lineno}" if isinstance(error, json.JSONDecodeError) else file
        raise ConfigError(f"Cannot read {place}: it is not JSON") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ConfigError(f"Cannot use {file}: an event's schema must be a record")
    found = _Reader(file).type(schema, "", "the event", 0)
    assert isinstance(found, Struct)
    return found.fields


class _Reader:
    def __init__(self, file: str) -> None:
        self.file = file
        self.named: dict[str, Type | None] = {}

    def type(self, schema: Any, namespace: str, where: str, depth: int) -> Type:
        if depth > MAX_DEPTH:
            raise self.refused(where, f"has more than {MAX_DEPTH} levels")
        if isinstance(schema, list):
            return self.type(self.single(schema, where), namespace, where, depth + 1)
        if isinstance(schema, str):
            return self.word(schema, namespace, where)
        if not isinstance(schema, Mapping) or "type" not in schema:
            raise self.refused(where, "has no type")
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.type(kind, namespace, where, depth + 1)
        if kind == "array":
            return Array(self.type(schema.get("items"), namespace, f"{where} items", depth + 1))
        if kind == "map":
            return Map(Simple("STRING"), self.type(schema.get("values"), namespace, f"{where} values", depth + 1))
        if kind in ("record", "enum", "fixed"):
            return self.define(schema, kind, namespace, where, depth)
        return self.logical(schema, kind, namespace, where)

    def single(self, union: list[Any], where: str) -> Any:
        members = [member for member in union if member != "null"]
        if len(members) != 1:
            kinds = ", ".join(str(m.get("name", m.get("type")) if isinstance(m, Mapping) else m) for m in union)
            raise self.refused(where, f"is a union of [{kinds}]: only a type and null can become one column")
        return members[0]

    def word(self, name: str, namespace: str, where: str) -> Type:
        if name in _FROM and name not in ("enum", "fixed"):
            return Simple(_FROM[name])
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        key = full if full in self.named else name
        if key not in self.named:
            raise self.refused(where, f"has the unknown type {name!r}")
        known = self.named[key]
        if known is None:
            raise self.refused(where, f"refers to {name!r} inside itself: a column can't be recursive")
        return known

    def define(self, schema: Mapping[str, Any], kind: str, namespace: str, where: str, depth: int) -> Type:
        name = str(schema.get("name", ""))
        inner = name.rpartition(".")[0] or str(schema.get("namespace", namespace))
        full = name if "." in name or not inner else f"{inner}.{name}"
        self.named[full] = None
        made = (
            self.record(schema, inner, where, depth) if kind == "record" else self.logical(schema, kind, inner, where)
        )
        self.named[full] = made
        return made

    def record(self, schema: Mapping[str, Any], namespace: str, where: str, depth: int) -> Struct:
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise self.refused(where, "has no list of fields")
        found: list[Column] = []
        for field in fields:
            if not isinstance(field, Mapping) or not isinstance(field.get("name"), str) or "type" not in field:
                raise self.refused(where, "has a field without name or type")
            inside = field["name"] if depth == 0 else f"{where}.{field['name']}"
            found.append(Column(field["name"], self.type(field["type"], namespace, inside, depth + 1)))
        if len({column.name.lower() for column in found}) < len(found):
            raise self.refused(where, "has a field twice")
        return Struct(tuple(found))

    def logical(self, schema: Mapping[str, Any], kind: str, namespace: str, where: str) -> Type:
        name = schema.get("logicalType")
        if name == "decimal" and kind in ("bytes", "fixed"):
            precision, scale = schema.get("precision"), schema.get("scale", 0)
            if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision <= 38:
                raise self.refused(where, f"is a decimal with precision {precision!r} and scale {scale!r}")
            return Decimal(precision, scale)
        if isinstance(name, str) and (kind, name) in LOGICAL:
            return Simple(LOGICAL[(kind, name)])
        if isinstance(name, str) and name.startswith("time-"):
            raise self.refused(where, f"has the logical type {name!r}, which has no column type")
        # The Avro specification: a logical type one does not know is ignored.
        return Simple(_FROM[kind]) if kind in _FROM else self.word(kind, namespace, where)

    def refused(self, where: str, what: str) -> ConfigError:
        return ConfigError(f"Cannot use {self.file}: {where} {what}")


def schema_of(found: tuple[Column, ...], name: str) -> dict[str, Any]:
    """The Avro record schema of the columns; each of them is nullable."""
    return _record(found, name)


def _record(found: tuple[Column, ...], name: str) -> dict[str, Any]:
    for column in found:
        if not _NAME.match(column.name):
            raise ConfigError(f"Cannot write column {column.name!r} as Avro: use letters, digits and _")
    fields = [
        {"name": column.name, "type": ["null", _written(column.type, f"{name}_{column.name}")], "default": None}
        for column in found
    ]
    return {"type": "record", "name": name, "fields": fields}


def _written(kind: Type, name: str) -> Any:
    if isinstance(kind, Struct):
        return _record(kind.fields, name)
    if isinstance(kind, Array):
        return {"type": "array", "items": ["null", _written(kind.element, f"{name}_item")]}
    if isinstance(kind, Map):
        if kind.key != Simple("STRING"):
            raise ConfigError(f"Cannot write {kind} as Avro: the keys of a map must be STRING")
        return {"type": "map", "values": ["null", _written(kind.value, f"{name}_value")]}
    if isinstance(kind, Decimal):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if kind.name not in _TO:
        raise ConfigError(f"Cannot write {kind} as Avro: it has no such type")
    return _TO[kind.name]
