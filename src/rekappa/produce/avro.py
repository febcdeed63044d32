"""Avro's binary encoding of one record, without a header, as the `avro` format of a source has it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

from rekappa.timeline import micros


def avro_bytes(schema: Any, value: Any) -> bytes:
    """The value by its schema. Raises `ValueError` where the schema has no place for it: null, an enum's word."""
    out = bytearray()
    _Writer(out).write(schema, value, "")
    return bytes(out)


class _Writer:
    def __init__(self, out: bytearray) -> None:
        self.out = out
        self.named: dict[str, Any] = {}

    def write(self, schema: Any, value: Any, namespace: str) -> None:
        if isinstance(schema, list):
            self.union(schema, value, namespace)
            return
        if isinstance(schema, str) and schema not in _PRIMITIVE:
            schema = self.named[schema if schema in self.named else f"{namespace}.{schema}"]
        if isinstance(schema, str):
            self.primitive(schema, value)
            return
        kind = schema["type"]
        if not isinstance(kind, str):
            self.write(kind, value, namespace)
        elif kind in ("record", "enum", "fixed"):
            self.define(schema, kind, value, namespace)
        elif kind == "array":
            self.block(value, lambda item: self.write(schema["items"], item, namespace))
        elif kind == "map":
            self.block(_required(value).items(), lambda pair: self.entry(schema["values"], pair, namespace))
        elif kind in _PRIMITIVE:
            self.primitive(kind, _physical(schema, value))
        else:
            self.write(kind, value, namespace)

    def union(self, members: list[Any], value: Any, namespace: str) -> None:
        wanted = [at for at, member in enumerate(members) if (member == "null") == (value is None)]
        if not wanted:
            raise ValueError("is null, which the Avro schema does not allow")
        self.long(wanted[0])
        self.write(members[wanted[0]], value, namespace)

    def define(self, schema: Mapping[str, Any], kind: str, value: Any, namespace: str) -> None:
        name = str(schema["name"])
        inner = name.rpartition(".")[0] or str(schema.get("namespace", namespace))
        self.named[name if "." in name or not inner else f"{inner}.{name}"] = schema
        if kind == "record":
            for field in schema["fields"]:
                try:
                    self.write(field["type"], _required(value).get(field["name"]), inner)
                except ValueError as error:
                    raise ValueError(f"{field['name']} {error}") from None
        elif kind == "enum":
            if value not in schema["symbols"]:
                raise ValueError(f"{value!r} is none of {', '.join(schema['symbols'])}")
            self.long(schema["symbols"].index(value))
        else:
            made = _physical(schema, value)
            if len(made) != schema["size"]:
                raise ValueError(f"{value!r} has not the {schema['size']} bytes of {name}")
            self.out += made

    def block(self, items: Any, each: Any) -> None:
        made = list(_required(items))
        if made:
            self.long(len(made))
            for item in made:
                each(item)
        self.long(0)

    def entry(self, values: Any, pair: tuple[Any, Any], namespace: str) -> None:
        self.primitive("string", pair[0])
        self.write(values, pair[1], namespace)

    def primitive(self, kind: str, value: Any) -> None:
        if kind == "null":
            return
        value = _required(value)
        if kind == "boolean":
            self.out.append(bool(value))
        elif kind in ("int", "long"):
            self.long(value)
        elif kind in ("float", "double"):
            self.out += struct.pack("<f" if kind == "float" else "<d", value)
        else:
            made = value.encode() if isinstance(value, str) else bytes(value)
            self.long(len(made))
            self.out += made

    def long(self, value: int) -> None:
        """Zigzag, then seven bits a byte, the lowest first."""
        rest = (value << 1) ^ (value >> 63)
        while rest > 0x7F:
            self.out.append(rest & 0x7F | 0x80)
            rest >>= 7
        self.out.append(rest)


_EXACT = Context(prec=100)
_PRIMITIVE = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def _required(value: Any) -> Any:
    if value is None:
        raise ValueError("is null, which the Avro schema does not allow")
    return value


def _physical(schema: Mapping[str, Any], value: Any) -> Any:
    """What a logical type is stored as."""
    name = schema.get("logicalType")
    if isinstance(value, datetime) and name is not None:
        since = micros(value if value.tzinfo is not None else value.replace(tzinfo=UTC))
        return since // 1000 if name.endswith("-millis") else since
    if isinstance(value, date) and name == "date":
        return (value - date(1970, 1, 1)) // timedelta(days=1)
    if isinstance(value, Decimal) and name == "decimal":
        whole = int(value.scaleb(int(schema.get("scale", 0)), _EXACT))
        size = schema.get("size") or whole.bit_length() // 8 + 1
        return whole.to_bytes(size, "big", signed=True)
    return value
