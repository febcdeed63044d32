"""Protobuf messages, read by the schema that each was written with; its fields are found by their names.

Protobuf's own rules hold: a field without presence that is not set has its type's zero, one with presence (`optional`,
a message, a member of a oneof) is null. Enums are their names in a STRING column and their numbers in any other,
`google.protobuf.Timestamp` is a time, the wrappers are what they wrap.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from functools import cache
from pathlib import Path
from typing import Any

from pyspark.sql.types import ArrayType, MapType, StringType, StructType

from rekappa.sources.payloads.packages import package
from rekappa.sources.payloads.registry import RegistryPlace, Schema, look_up, referenced
from rekappa.sources.payloads.wire import Undecodable, split_steps, unframed

_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_MAIN = "event.proto"


@dataclass(frozen=True, slots=True)
class ProtobufPayload:
    place: RegistryPlace

    def values(self, message: bytes, payload: StructType) -> Mapping[str, Any]:
        from google.protobuf.message import DecodeError

        schema_id, body = unframed(message)
        steps, rest = split_steps(body)
        made = _of_schema(self.place, schema_id, steps)()
        try:
            made.ParseFromString(rest)
        except DecodeError as error:
            raise Undecodable(f"not a message of schema {schema_id}: {error}") from None
        return fields(made, payload)


def fields(message: Any, wanted: StructType) -> dict[str, Any]:
    """The wanted fields of a message, by name; None for what it does not have."""
    known = message.DESCRIPTOR.fields_by_name
    return {f.name: _field(message, known[f.name], f.dataType) if f.name in known else None for f in wanted.fields}


def message_class(schema: Schema, builds_on: Mapping[str, Schema], steps: tuple[int, ...]) -> Any:
    """The class of the message at the end of these steps: a type of the file, then a type inside it, and so on."""
    from google.protobuf.message_factory import GetMessageClass

    file = _file(schema, builds_on)
    place, inside = None, list(file.message_types_by_name.values())
    for step in steps:
        if not 0 <= step < len(inside):
            raise Undecodable(f"schema {schema.id} has no message type at {'.'.join(str(one) for one in steps)}")
        place = inside[step]
        inside = list(place.nested_types)
    assert place is not None
    return GetMessageClass(place)


@cache
def _of_schema(place: RegistryPlace, schema_id: int, steps: tuple[int, ...]) -> Any:
    schema = look_up(place, schema_id, "PROTOBUF")
    return message_class(schema, referenced(place, schema), steps)


def _file(schema: Schema, builds_on: Mapping[str, Schema]) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(compiled(schema.text, {n: s.text for n, s in builds_on.items()})).file:
        pool.Add(file)
    return pool.FindFileByName(_MAIN)


def compiled(text: str, imports: Mapping[str, str]) -> bytes:
    """The descriptors of a .proto file and of all that it imports, each after what it needs."""
    protoc = package("grpc_tools.protoc")
    with tempfile.TemporaryDirectory(prefix="rekappa-protobuf-") as folder:
        root = Path(folder)
        for name, one in {_MAIN: text, **imports}.items():
            file = root / name
            if not file.resolve().is_relative_to(root.resolve()):
                raise Undecodable(f"its schema can't be read: it imports {name!r}")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(one, "utf-8")
        made, wellknown = root / "descriptors", Path(protoc.__file__).parent / "_proto"
        options = [f"-I{folder}", f"-I{wellknown}", "--include_imports", f"--descriptor_set_out={made}"]
        if protoc.main(["protoc", *options, _MAIN]) != 0:
            print(f"rekappa: protoc refused a schema:\n{text}", file=sys.stderr)
            raise Undecodable("its schema can't be read: Protobuf's compiler refuses it")
        return made.read_bytes()


def _field(message: Any, field: Any, kind: Any) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inside = field.message_type.fields_by_name["value"]
        if not isinstance(kind, MapType):
            raise Undecodable(f"field {field.name!r}: a map is not {kind.simpleString()}")
        return {key: _single(item, inside, kind.valueType) for key, item in value.items()}
    if field.is_repeated:
        if not isinstance(kind, ArrayType):
            raise Undecodable(f"field {field.name!r}: a list is not {kind.simpleString()}")
        return [_single(item, field, kind.elementType) for item in value]
    return _single(value, field, kind)


def _single(value: Any, field: Any, kind: Any) -> Any:
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return (named.name if named is not None else str(value)) if isinstance(kind, StringType) else value
    if field.message_type is None:
        return value
    if field.message_type.full_name == _TIMESTAMP and not isinstance(kind, StructType):
        try:
            return value.ToDatetime(tzinfo=UTC)
        except (ValueError, OverflowError) as error:
            raise Undecodable(f"field {field.name!r}: {error}") from None
    if field.message_type.full_name in _WRAPPERS and not isinstance(kind, StructType):
        return value.value
    if not isinstance(kind, StructType):
        raise Undecodable(f"field {field.name!r}: a message is not {kind.simpleString()}")
    return fields(value, kind)
