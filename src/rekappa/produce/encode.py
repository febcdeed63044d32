"""An event's bytes, in the format that its source declares."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from pathlib import Path
from typing import Any

from rekappa.config.ddl import Array, Column, Map, Struct, Type
from rekappa.config.model import Source
from rekappa.config.schema import avro_schema, payload_columns
from rekappa.produce.avro import avro_bytes
from rekappa.produce.written import write_json

Encode = Callable[[Mapping[str, Any]], bytes]


def encoder(source: Source, folder: Path) -> Encode:
    """From converted values, by column, to a message's payload. Raises `ValueError` for what the format can't hold."""
    if source.format.type == "avro":
        schema = json.loads(avro_schema(source, folder))
        return lambda values: avro_bytes(schema, values)
    columns = payload_columns(source, folder)
    return lambda values: _object(columns, values).encode()


def _object(columns: tuple[Column, ...], values: Mapping[str, Any]) -> str:
    parts = (f"{json.dumps(column.name)}: {_text(values.get(column.name), column.type)}" for column in columns)
    return "{" + ", ".join(parts) + "}"


def _text(value: Any, kind: Type) -> str:
    """JSON as Spark reads it back: decimals with all their digits, instants in UTC, bytes as base64."""
    if value is None:
        return "null"
    if isinstance(kind, Struct):
        return _object(kind.fields, value)
    if isinstance(kind, Array):
        return "[" + ", ".join(_text(item, kind.element) for item in value) + "]"
    if isinstance(kind, Map):
        pairs = (f"{json.dumps(_bare(key, kind.key))}: {_text(item, kind.value)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, Number):
        return format(value, "f")
    if isinstance(value, float) and value - value != 0:
        return json.dumps("NaN" if value != value else "Infinity" if value > 0 else "-Infinity")
    if isinstance(value, datetime):
        return json.dumps(_instant(value))
    if isinstance(value, date):
        return json.dumps(value.isoformat())
    return write_json(base64.b64encode(value).decode() if isinstance(value, bytes) else value)


def _bare(key: Any, kind: Type) -> str:
    """A map's key: JSON has texts only."""
    written = _text(key, kind)
    return json.loads(written) if written.startswith('"') else written


def _instant(moment: datetime) -> str:
    if moment.tzinfo is None:
        return moment.isoformat()
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
