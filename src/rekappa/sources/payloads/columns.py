"""Decoding in Spark's Python workers: a column of messages in, a column of payloads out, a block of rows at a time.

Runs where Spark's workers run; imported there and where the function is made, nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from rekappa.sources.payloads.fits import fits
from rekappa.sources.payloads.registry import Kind, RegistryPlace, forget_unknown, look_up
from rekappa.sources.payloads.wire import Undecodable, unframed


class Payload(Protocol):
    """How a message of one format is read, by the schemas of a registry. Goes to the workers as it is."""

    @property
    def place(self) -> RegistryPlace: ...

    def values(self, message: bytes, payload: StructType) -> Mapping[str, Any]:
        """Fields by name, as Python's values; raises `Undecodable`."""


def decoded(value: Column, reader: Payload, payload: StructType, corrupt: str) -> Column:
    """A struct of the payload's fields and `corrupt`, which says why nothing was decoded; null where it was."""
    shape = StructType([*payload.fields, StructField(corrupt, StringType())])
    return _applied(by_block(reader, payload, corrupt), shape, value)


def by_block(reader: Payload, payload: StructType, corrupt: str) -> Callable[[pa.Array], pa.Array]:
    """What decodes a block of messages."""

    def decoded_by_registry(messages: pa.Array) -> pa.Array:
        forget_unknown(reader.place)
        return struct_array(messages.to_pylist(), reader, payload, corrupt)

    return decoded_by_registry


def problems(value: Column, place: RegistryPlace, kind: Kind) -> Column:
    """Why a message has no schema of this kind; null where it has."""

    def schema_problem(messages: pa.Array) -> pa.Array:
        forget_unknown(place)
        return pa.array([_problem(message, place, kind) for message in messages.to_pylist()], pa.string())

    return _applied(schema_problem, StringType(), value)


def _applied(function: Callable[[pa.Array], pa.Array], kind: DataType, value: Column) -> Column:
    # What kind of function it is, is told by its annotations.
    made: Column = arrow_udf(function, kind)(value)  # type: ignore[call-overload]
    return made


def _problem(message: bytes | None, place: RegistryPlace, kind: Kind) -> str | None:
    try:
        if message is not None:
            look_up(place, unframed(message).schema_id, kind)
    except Undecodable as error:
        return str(error)
    return None


def struct_array(messages: list[bytes | None], reader: Payload, payload: StructType, corrupt: str) -> pa.Array:
    """All messages at once; one by one where a value of some message does not fit its column."""
    shaped = _pairs if _has_map(payload) else _as_is
    rows = [_row(message, reader, payload, corrupt, shaped) for message in messages]
    kind, check = pa.struct([*_arrow(payload), pa.field(corrupt, pa.string())]), fits(payload)
    if check is None or all(map(check, rows)):
        try:
            return pa.array(rows, kind)
        except _MISFITS:
            pass
    return pa.array([_fitting(row, payload, corrupt) for row in rows], kind)


_MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def _row(
    message: bytes | None,
    reader: Payload,
    payload: StructType,
    corrupt: str,
    shaped: Callable[[Any, DataType], Any],
) -> dict[str, Any]:
    if message is None:
        return {corrupt: None}
    try:
        return {**shaped(reader.values(message, payload), payload), corrupt: None}
    except Undecodable as error:
        return {corrupt: str(error)}


def _fitting(row: dict[str, Any], payload: StructType, corrupt: str) -> dict[str, Any]:
    for field, kind in zip(payload.fields, _arrow(payload), strict=True):
        value, check = row.get(field.name), fits(field.dataType)
        if (check is not None and not check(value)) or not _is_arrows(value, kind.type):
            return {corrupt: f"field {field.name!r}: {_shown(value)} is not {field.dataType.simpleString()}"}
    return row


def _is_arrows(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except _MISFITS:
        return False
    return True


def _arrow(payload: StructType) -> list[pa.Field]:
    return list(to_arrow_type(payload))


def _as_is(value: Any, _: DataType) -> Any:
    return value


def _pairs(value: Any, kind: DataType) -> Any:
    """Maps as lists of pairs, which is how Arrow takes them; the rest, and what fits no such type, as it is."""
    if value is None or not _has_map(kind):
        return value
    if isinstance(kind, MapType) and isinstance(value, Mapping):
        return [(_pairs(key, kind.keyType), _pairs(item, kind.valueType)) for key, item in value.items()]
    if isinstance(kind, ArrayType) and isinstance(value, list):
        return [_pairs(item, kind.elementType) for item in value]
    if isinstance(kind, StructType) and isinstance(value, Mapping):
        return {field.name: _pairs(value.get(field.name), field.dataType) for field in kind.fields}
    return value


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    return isinstance(kind, MapType) or (isinstance(kind, ArrayType) and _has_map(kind.elementType))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
