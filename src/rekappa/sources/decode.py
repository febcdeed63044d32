"""From a message's bytes to payload columns: JSON and Avro, the same for the live source and the router.

Decoding never fails a query. A message that does not fit the declared schema has a null `DECODED` column:
the live source leaves it out, the router keeps it in the dead letters. A message without a value (a
tombstone) holds no event and is treated the same way.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rekappa.record import METADATA_TYPE

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

    from rekappa.config.model import Source

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
    from pyspark.sql.types import StructType

    from rekappa.config.schema import payload_ddl

    made: StructType = nullable(StructType.fromDDL(payload_ddl(source, folder)))
    return made


def metadata_type() -> StructType:
    """The type of `__metadata__`."""
    made: StructType = column_type(METADATA_TYPE)
    return made


def column_type(ddl: str) -> Any:
    """One column's type, from its DDL."""
    from pyspark.sql.types import StructType

    whole: Any = StructType.fromDDL(f"x {ddl}")
    return whole.fields[0].dataType


def decode(source: Source, folder: Path, value: Column, payload: StructType) -> Column:
    """A struct of the payload's fields and `CORRUPT`, which is null exactly where decoding worked."""
    if source.format == "json":
        return _json(value, payload)
    from rekappa.config.schema import avro_schema

    return _avro(value, payload, avro_schema(source, folder))


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
    corrupt = F.when(read[CORRUPT].isNull(), F.lit("")).otherwise(F.lit(None).cast("string"))
    kept = [read[field.name].cast(field.dataType).alias(field.name) for field in payload.fields]
    return F.struct(*kept, corrupt.alias(CORRUPT))


def is_event(value: Column, decoded: Column) -> Column:
    """Whether the message holds an event of the declared schema; never null."""
    from pyspark.sql import functions as F

    return value.isNotNull() & decoded.isNotNull() & F.coalesce(decoded[CORRUPT].isNull(), F.lit(False))
