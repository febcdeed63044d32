"""What a state value becomes on its way through Spark's state store and back.

    stored = through(StructType().add("first", "long").add("name", "string"))
    stored((np.int64(5), None))   # (5, None)

Spark pickles a value by its declared schema, reads it in the JVM and gives it back as Python values. A field whose
value is of another type than declared comes back as null, numbers wrap at the width of their type, a `datetime` comes
back without a zone. A processor may rely on any of that, so an in-memory state does the same.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Stored = Callable[[Any], tuple[Any, ...]]
_Convert = Callable[[Any], Any]
_PLAIN = frozenset({int, float, str, bool, type(None)})
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}


def through(schema: StructType) -> Stored:
    """The function from a value as a processor gives it to the value that it gets back later."""
    names = schema.names
    fields = tuple(_of_type(field.dataType) for field in schema.fields)
    width = len(fields)
    unchanged = _unchanged(schema)

    def stored(value: Any) -> tuple[Any, ...]:
        if unchanged(value):
            found: tuple[Any, ...] = value
            return found
        plain = value if type(value) is tuple and _PLAIN.issuperset(map(type, value)) else _plain(tuple(value))
        if len(plain) < width:
            raise ValueError(f"Cannot store {value!r}: the state has {width} fields ({', '.join(names)})")
        return tuple([convert(part) for convert, part in zip(fields, plain, strict=False)])

    return stored


def _unchanged(schema: StructType) -> Callable[[Any], bool]:
    """Whether a value is one that comes back just as it is: a tuple of the declared types and none but these. Most
    are, and this is found out in a fraction of the time that it takes to convert each part."""
    kinds = {"long": int, "double": float, "boolean": bool, "string": str}
    wanted = tuple(kinds.get(field.dataType.typeName()) for field in schema.fields)
    whole = [at for at, kind in enumerate(wanted) if kind is int]

    def unchanged(value: Any) -> bool:
        if type(value) is not tuple or tuple(map(type, value)) != wanted:
            return False
        for at in whole:  # noqa: SIM110  # a generator for all() would take twice as long
            if not _LOWEST <= value[at] <= _HIGHEST:
                return False
        return True

    return unchanged


def _plain(value: Any) -> Any:
    """NumPy's and pandas' scalars as Python's, at any depth, as PySpark does before it pickles."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, list | tuple):
        parts = [_plain(part) for part in value]
        return tuple(parts) if isinstance(value, tuple) else parts
    if isinstance(value, dict):
        return {_plain(key): _plain(part) for key, part in value.items()}
    if hasattr(value, "to_pytimedelta"):
        return value.to_pytimedelta()
    if hasattr(value, "to_pydatetime"):
        return value.to_pydatetime()
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    return value


def _of_type(kind: DataType) -> _Convert:
    from pyspark.sql import types

    name = kind.typeName()
    if name in _BITS:
        return _integer(_BITS[name])
    simple: Mapping[str, _Convert] = {
        "double": lambda value: value if isinstance(value, float) else None,
        "float": lambda value: struct.unpack("f", struct.pack("f", value))[0] if isinstance(value, float) else None,
        "boolean": lambda value: value if isinstance(value, bool) else None,
        "string": _text,
        "binary": _binary,
    }
    if name in simple:
        return simple[name]
    if isinstance(kind, types.DecimalType):
        return _decimal(kind)
    if isinstance(kind, types.ArrayType):
        element = _of_type(kind.elementType)
        return lambda value: [element(part) for part in value] if isinstance(value, list | tuple) else None
    if isinstance(kind, types.MapType):
        key, part = _of_type(kind.keyType), _of_type(kind.valueType)
        return lambda value: {key(k): part(v) for k, v in value.items()} if isinstance(value, dict) else None
    if isinstance(kind, types.StructType):
        return _struct(kind)
    # Times, dates and intervals: what PySpark itself makes of them on the way in and out.
    return lambda value: None if value is None else kind.fromInternal(kind.toInternal(value))


def _integer(bits: int) -> _Convert:
    half, whole = 1 << (bits - 1), 1 << bits

    def convert(value: Any) -> int | None:
        if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
            return None
        return value if -half <= value < half else (value + half) % whole - half

    return convert


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


def _binary(value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, bytes | bytearray) else None


def _decimal(kind: Any) -> _Convert:
    step = Decimal(1).scaleb(-kind.scale)
    most = Decimal(10) ** (kind.precision - kind.scale)

    def convert(value: Any) -> Decimal | None:
        if not isinstance(value, Decimal):
            return None
        rounded = value.quantize(step, ROUND_HALF_UP)
        if abs(rounded) >= most:
            raise ValueError(f"Cannot store {value} as {kind.simpleString()}")
        return rounded

    return convert


def _struct(kind: StructType) -> _Convert:
    from pyspark.sql import Row

    inner, make = through(kind), Row(*kind.names)

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, dict):
            value = tuple(value.get(name) for name in kind.names)
        return make(*inner(value))

    return convert
