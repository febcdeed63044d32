"""An event's bytes behind the id of its schema, written with the newest schema of the source's subject."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rekappa.errors import SourceError
from rekappa.produce.encode import Encode, encoder
from rekappa.sources.payloads.avro import parsed
from rekappa.sources.payloads.protobuf import message_class
from rekappa.sources.payloads.registry import RegistryPlace, Schema, newest, referenced
from rekappa.sources.payloads.wire import Undecodable, framed, written_steps

if TYPE_CHECKING:
    from rekappa.config.load import Loaded
    from rekappa.config.model import Source

_FIRST = (0,)
"""Of a Protobuf file, the message type that stands first in it."""


def event_encoder(loaded: Loaded, source: Source, topic: str) -> Encode:
    """From converted values, by column, to a message's value. Raises `ValueError` for what the format can't hold.

    With a registry, it is asked once for the newest schema of the subject; refused if there is none.
    """
    if source.format.registry is None:
        return encoder(source, loaded.folder)
    place = RegistryPlace.of(loaded.config.registries[source.format.registry])
    subject = source.format.subject or f"{topic}-value"
    schema = newest(place, subject)
    if schema.kind.lower() != source.format.type:
        raise SourceError(
            f"Cannot write {source.format.type} with subject {subject!r}: its schema is of kind {schema.kind}",
            hint="Name another subject, or the format that it has: format: {type: …, subject: …}",
        )
    try:
        if schema.kind == "AVRO":
            encode = _avro(schema, referenced(place, schema))
        elif schema.kind == "PROTOBUF":
            encode = _protobuf(schema, referenced(place, schema))
        else:
            encode = encoder(source, loaded.folder)
    except Undecodable as error:
        raise SourceError(f"Cannot write with subject {subject!r}: {error}") from None
    return lambda values: framed(schema.id, encode(values))


def _avro(schema: Schema, builds_on: Mapping[str, Schema]) -> Encode:
    from fastavro import schemaless_writer

    made = parsed(schema, builds_on)

    def encode(values: Mapping[str, Any]) -> bytes:
        out = io.BytesIO()
        try:
            schemaless_writer(out, made, dict(values))
        except (ValueError, TypeError, OverflowError, KeyError) as error:
            raise ValueError(f"does not fit schema {schema.id}: {error}") from None
        return out.getvalue()

    return encode


def _protobuf(schema: Schema, builds_on: Mapping[str, Schema]) -> Encode:
    from google.protobuf.json_format import ParseDict, ParseError

    kind = message_class(schema, builds_on, _FIRST)

    def encode(values: Mapping[str, Any]) -> bytes:
        try:
            made = ParseDict(
                json.loads(json.dumps(dict(values), default=_json_value)), kind(), ignore_unknown_fields=True
            )
        except ParseError as error:
            raise ValueError(f"does not fit schema {schema.id}: {error}") from None
        return written_steps(_FIRST) + bytes(made.SerializeToString())

    return encode


def _json_value(value: Any) -> Any:
    """Protobuf's own JSON for what JSON has no words for."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, Decimal) else value.isoformat()
