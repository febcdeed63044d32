"""A source's payload schema: Spark DDL in the configuration, or a .ddl or .avsc file beside it."""

from __future__ import annotations

import json
from pathlib import Path

from rekappa.config import avro, ddl
from rekappa.config.ddl import Column, Struct, Type
from rekappa.config.model import SchemaFile, Source
from rekappa.errors import ConfigError
from rekappa.record import METADATA


def payload_columns(source: Source, folder: Path) -> tuple[Column, ...]:
    """The payload's columns, from the configuration or the file it names; refuses with `ConfigError`."""
    found = _columns(source.schema_, folder)
    if not found:
        raise ConfigError("Cannot use the schema: it has no columns")
    if any(column.name.lower() == METADATA for column in found):
        raise ConfigError(f"Cannot use the schema: the column {METADATA} is rekappa's own")
    return found


def avro_schema(source: Source, folder: Path) -> str:
    """The Avro schema (JSON) of the source's payload: the .avsc file itself, or one made from the columns."""
    if isinstance(source.schema_, SchemaFile) and source.schema_.file.endswith(".avsc"):
        payload_columns(source, folder)
        return json.dumps(json.loads(_text(folder / source.schema_.file)))
    return json.dumps(avro.schema_of(payload_columns(source, folder), "Event"))


def column_type(found: tuple[Column, ...], path: str) -> Type | None:
    """The type of the column at the (dotted) path, in Spark's way: whatever the case; None if there is none."""
    head, _, rest = path.partition(".")
    for column in found:
        if column.name.lower() == path.lower():
            return column.type
        if column.name.lower() == head.lower() and rest and isinstance(column.type, Struct):
            return column_type(column.type.fields, rest)
    return None


def _columns(schema: str | SchemaFile, folder: Path) -> tuple[Column, ...]:
    if isinstance(schema, str):
        return ddl.columns(schema)
    text = _text(folder / schema.file)
    if schema.file.endswith(".avsc"):
        return avro.columns_of(text, schema.file)
    if schema.file.endswith(".ddl"):
        try:
            return ddl.columns(text)
        except ConfigError as error:
            raise ConfigError(f"{error.message} (in {schema.file})", hint=error.hint) from None
    raise ConfigError(f"Cannot use schema file {schema.file!r}", hint="Name a .ddl or an .avsc file.")


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"Cannot read schema file {file.name}: it is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its name is not a path"
        raise ConfigError(f"Cannot read schema file {file.name!r}: {reason}") from None
