"""From a message's bytes to payload columns, whatever their format; the same for the live source and the router.

No message fails a query. One that does not fit the declared schema has a `CORRUPT` field, or is null as a whole: the
live source leaves it out, the router keeps it in the dead letters. A message without a value (a tombstone) holds no
event and is treated the same way.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from rekappa.config.model import SchemaFile
from rekappa.record import METADATA, METADATA_TYPE

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

    from rekappa.config.load import Loaded
    from rekappa.config.model import Source
    from rekappa.sources.payloads.columns import Payload
    from rekappa.sources.payloads.registry import RegistryPlace

DECODED = "__decoded__"
CORRUPT = "__corrupt__"


def nullable(kind: DataType) -> Any:
    """The same type with everything in it nullable and no field comments."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if isinstance(kind, StructType):
        return StructType([StructField(field.name, nullable(field.dataType)) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(nullable(kind.keyType), nullable(kind.valueType))
    return kind


def payload_type(source: Source, folder: Path) -> StructType:
    """The payload's columns as the source declares them, all nullable."""
    from rekappa.config.schema import payload_columns
    from rekappa.sources.types import struct_type

    return struct_type(payload_columns(source, folder))


def record_type(source: Source, folder: Path) -> StructType:
    """The record's whole schema: payload, then `__metadata__`."""
    from pyspark.sql.types import StructField, StructType

    return StructType([*payload_type(source, folder).fields, StructField(METADATA, metadata_type())])


@cache
def metadata_type() -> StructType:
    """The type of `__metadata__`."""
    from rekappa.config.ddl import columns
    from rekappa.sources.types import struct_type

    (metadata,) = struct_type(columns(f"{METADATA} {METADATA_TYPE}"))
    return cast("StructType", metadata.dataType)


def column_type(ddl: str) -> Any:
    """One column's type, from its DDL."""
    from pyspark.sql.types import StructType

    whole: Any = StructType.fromDDL(f"x {ddl}")
    return whole.fields[0].dataType


class Decoder(Protocol):
    """One format. Goes to Spark's workers with the functions that use it there."""

    @property
    def repeatable(self) -> bool:
        """Whether a message is decoded the same a second time: not where somebody else is asked."""

    @property
    def names_fields(self) -> bool:
        """Whether messages name their fields, those that nobody declared among them: JSON does."""

    def decode(self, value: Column, payload: StructType) -> Column:
        """A struct of the payload's fields and `CORRUPT`, which is null exactly where decoding worked."""

    def said(self, decoded: Column) -> Column:
        """Why there is no event in the message, as far as decoding tells; null or empty where it does not."""

    def body(self, value: Column) -> Column:
        """The messages without what stands in front of their payload."""

    def body_of(self, message: bytes | None) -> bytes | None:
        """The same of one message."""


def decoder(loaded: Loaded, source: Source) -> Decoder:
    """How a source's messages are decoded."""
    from rekappa.config.schema import avro_schema

    kind, registry = source.format.type, source.format.registry
    if registry is None:
        return PlainJson() if kind == "json" else PlainAvro(avro_schema(source, loaded.folder))
    from rekappa.sources.payloads.avro import AvroPayload
    from rekappa.sources.payloads.packages import package
    from rekappa.sources.payloads.protobuf import ProtobufPayload
    from rekappa.sources.payloads.registry import RegistryPlace

    place = RegistryPlace.of(loaded.config.registries[registry])
    if kind == "json":
        return RegisteredJson(place)
    # Missed now rather than in the first batch.
    package({"avro": "fastavro", "protobuf": "grpc_tools.protoc"}[kind])
    if kind == "protobuf":
        return Registered(ProtobufPayload(place))
    resolves = isinstance(source.schema_, SchemaFile) and source.schema_.file.endswith(".avsc")
    return Registered(AvroPayload(place, avro_schema(source, loaded.folder) if resolves else None))


class _Whole:
    """Messages that are payload from their first byte on."""

    repeatable: ClassVar[bool] = True

    def body(self, value: Column) -> Column:
        return value

    def body_of(self, message: bytes | None) -> bytes | None:
        return message


class _Framed:
    """Messages that begin with the id of the schema that they were written with."""

    repeatable: ClassVar[bool] = False

    def said(self, decoded: Column) -> Column:
        return decoded[CORRUPT]

    def body(self, value: Column) -> Column:
        from pyspark.sql import functions as F

        from rekappa.sources.payloads.wire import HEAD_BYTES

        return F.substring(value, HEAD_BYTES + 1, 2**31 - 1)

    def body_of(self, message: bytes | None) -> bytes | None:
        from rekappa.sources.payloads.wire import HEAD_BYTES

        return None if message is None else message[HEAD_BYTES:]


@dataclass(frozen=True)
class PlainJson(_Whole):
    names_fields: ClassVar[bool] = True

    def decode(self, value: Column, payload: StructType) -> Column:
        return _json(value, payload)

    def said(self, decoded: Column) -> Column:
        from pyspark.sql import functions as F

        return F.lit(None).cast("string")


@dataclass(frozen=True)
class PlainAvro(_Whole):
    """Records that bear no mark of their schema: all are of this one."""

    schema: str
    names_fields: ClassVar[bool] = False

    def decode(self, value: Column, payload: StructType) -> Column:
        return _avro(value, payload, self.schema)

    def said(self, decoded: Column) -> Column:
        return decoded[CORRUPT]


@dataclass(frozen=True)
class RegisteredJson(_Framed):
    """JSON behind the id of a JSON schema. The id must be known; what an event is, the source's own schema says."""

    place: RegistryPlace
    names_fields: ClassVar[bool] = True

    def decode(self, value: Column, payload: StructType) -> Column:
        from pyspark.sql import functions as F

        from rekappa.sources.payloads.columns import problems

        read = _json(self.body(value), payload)
        misfit = F.when(read.isNull() | read[CORRUPT].isNotNull(), F.lit(""))
        corrupt = F.coalesce(problems(value, self.place, "JSON"), misfit)
        return F.struct(*[read[name].alias(name) for name in payload.names], corrupt.alias(CORRUPT))


@dataclass(frozen=True)
class Registered(_Framed):
    """Messages that only their schema can read, found by the id in front of each."""

    payload: Payload
    names_fields: ClassVar[bool] = False

    def decode(self, value: Column, payload: StructType) -> Column:
        from rekappa.sources.payloads.columns import decoded

        return decoded(value, self.payload, payload, CORRUPT)


def _json(value: Column, payload: StructType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    shape = StructType([*payload.fields, StructField(CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    return F.from_json(value.cast("string"), shape, options)


def _avro(value: Column, payload: StructType, writer: str) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    # Spark answers a row of nulls for bytes that it can't decode, the same as for a record whose fields are all
    # null. A field that only the reader knows has its default after a real decoding and null otherwise.
    fields = json.loads(writer)
    reader = {**fields, "fields": [*fields["fields"], {"name": CORRUPT, "type": "boolean", "default": True}]}
    options = {"mode": "PERMISSIVE", "avroSchema": json.dumps(reader)}
    read = from_avro(value, writer, options)
    corrupt = F.when(read[CORRUPT].isNull(), F.lit("not a record of the Avro schema")).otherwise(
        F.lit(None).cast("string")
    )
    kept = [read[field.name].cast(field.dataType).alias(field.name) for field in payload.fields]
    return F.struct(*kept, corrupt.alias(CORRUPT))


def is_event(value: Column, decoded: Column) -> Column:
    """Whether the message holds an event of the declared schema; never null."""
    from pyspark.sql import functions as F

    return value.isNotNull() & decoded.isNotNull() & F.coalesce(decoded[CORRUPT].isNull(), F.lit(False))
