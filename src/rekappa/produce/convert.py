"""Values of a file as values of the declared schema.

A CSV file has only texts, JSON and Parquet have types of their own; `convert` gives what the declared type holds, as
Python has it: bool, int, float, Decimal, str, bytes, date, datetime, list, dict. Nothing is rounded or cut to make it
fit: what does not fit raises `ValueError` that says why.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal as Number
from decimal import InvalidOperation
from functools import partial
from math import isinf
from typing import Any
from zoneinfo import ZoneInfo

from rekappa.config.ddl import Array, Decimal, Map, Struct, Type
from rekappa.produce.moments import TimeReading, read_moment, wall_clock
from rekappa.produce.written import read_json, told, write_json

_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_WORDS = {"true": True, "t": True, "yes": True, "1": True, "false": False, "f": False, "no": False, "0": False}
_LARGEST_FLOAT = 3.4028234663852886e38


def convert(value: Any, kind: Type, clock: TimeReading) -> Any:
    """The value as the type has it; null stays null."""
    if value is None:
        return None
    if isinstance(kind, Array | Map | Struct):
        return _nested(_parsed(value, kind), kind, clock)
    if isinstance(kind, Decimal):
        return _decimal(value, kind)
    return _SIMPLE[kind.name](value, clock)


def undeclared(value: Any, kind: Type, name: str) -> Iterator[str]:
    """The fields of structs, by path, that the value has and the type does not."""
    value = _parsed(value, kind) if isinstance(kind, Array | Map | Struct) else None
    if isinstance(kind, Struct) and isinstance(value, Mapping):
        known = {field.name: field.type for field in kind.fields}
        for field, inner in value.items():
            if field not in known:
                yield f"{name}.{field}"
            else:
                yield from undeclared(inner, known[field], f"{name}.{field}")
    elif isinstance(kind, Array) and isinstance(value, list | tuple):
        for item in value:
            yield from undeclared(item, kind.element, name)
    elif isinstance(kind, Map) and isinstance(value, Mapping):
        for item in value.values():
            yield from undeclared(item, kind.value, name)


def _nested(value: Any, kind: Array | Map | Struct, clock: TimeReading) -> Any:
    match kind:
        case Array():
            if not isinstance(value, list | tuple):
                raise _wrong(value, kind)
            return [convert(item, kind.element, clock) for item in value]
        case Map():
            # Parquet's maps arrive as lists of pairs.
            pairs = value.items() if isinstance(value, Mapping) else value
            try:
                return {_key(key, kind, clock): convert(item, kind.value, clock) for key, item in pairs}
            except (TypeError, AttributeError):
                raise _wrong(value, kind) from None
        case Struct():
            if not isinstance(value, Mapping):
                raise _wrong(value, kind)
            return {field.name: _field(value, field.name, field.type, clock) for field in kind.fields}


def _field(value: Mapping[str, Any], name: str, kind: Type, clock: TimeReading) -> Any:
    try:
        return convert(value.get(name), kind, clock)
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None


def _key(key: Any, kind: Map, clock: TimeReading) -> Any:
    made = convert(key, kind.key, clock)
    if made is None or isinstance(made, list | dict):
        raise _wrong(key, kind.key)
    return made


def _parsed(value: Any, kind: Type) -> Any:
    """A nested value in a text file is JSON."""
    if not isinstance(value, str):
        return value
    try:
        return read_json(value)
    except (ValueError, RecursionError):
        raise _wrong(value, kind) from None


def _boolean(value: Any, clock: TimeReading) -> bool:
    found = value if isinstance(value, bool) else _WORDS.get(str(value).strip().lower())
    if found is None:
        raise _wrong(value, "BOOLEAN")
    return found


def _integer(value: Any, clock: TimeReading, *, name: str) -> int:
    try:
        # A column of whole numbers with gaps is often written as fractions: 7.0
        written = _digits(value)
        whole = int(written)
        if not isinstance(written, str) and whole != written:
            raise ValueError
    except (ValueError, TypeError, OverflowError):
        raise _wrong(value, name) from None
    if not -(1 << _BITS[name] - 1) <= whole < 1 << _BITS[name] - 1:
        raise ValueError(f"{told(value)} is too large for {name}")
    return whole


def _double(value: Any, clock: TimeReading) -> float:
    try:
        written = _digits(value)
        made = float(written)
    except OverflowError:
        raise ValueError(f"{told(value)} is too large for DOUBLE") from None
    except (ValueError, TypeError):
        raise _wrong(value, "DOUBLE") from None
    if isinf(made) and any(sign.isdigit() for sign in str(written)):
        raise ValueError(f"{told(value)} is too large for DOUBLE")
    if _whole(written) and not isinf(made) and Number(repr(made)) != Number(str(written)):
        raise ValueError(f"{told(value)} has more digits than a DOUBLE holds: declare it as BIGINT or DECIMAL")
    return made


def _whole(value: Any) -> bool:
    if isinstance(value, Number):
        return value.is_finite() and value == value.to_integral_value()
    return isinstance(value, int) or (isinstance(value, str) and value.lstrip("+-").isdigit())


def _digits(value: Any) -> Any:
    """A number, or a text that may be one: not what only Python reads as such (1_000, True)."""
    if isinstance(value, bool) or (isinstance(value, str) and ("_" in value or not value.isascii())):
        raise ValueError
    return value.strip() if isinstance(value, str) else value


def _float(value: Any, clock: TimeReading) -> float:
    made = _double(value, clock)
    if made - made == 0 and abs(made) > _LARGEST_FLOAT:
        raise ValueError(f"{told(value)} is too large for FLOAT")
    return made


def _decimal(value: Any, kind: Decimal) -> Number:
    try:
        written = _digits(value)
        number = Number(repr(written) if isinstance(written, float) else str(written))
    except (ValueError, InvalidOperation):
        raise _wrong(value, kind) from None
    if not number.is_finite():
        raise _wrong(value, kind)
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), "only what is not finite has letters here"
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    if number and -exponent - zeros > kind.scale:
        raise ValueError(f"{told(value)} has more than {kind.scale} digits after the point, {kind} can't hold it")
    if number and number.adjusted() >= kind.precision - kind.scale:
        raise ValueError(f"{told(value)} is too large for {kind}")
    return number


def _string(value: Any, clock: TimeReading) -> str:
    if isinstance(value, str | bytes):
        try:
            return value.decode() if isinstance(value, bytes) else value.encode().decode()
        except UnicodeError:
            raise ValueError(f"{value!r} is no text that UTF-8 can write") from None
    if isinstance(value, bool | Mapping | list):
        return write_json(value)
    return value.isoformat() if isinstance(value, date) else str(value)


def _binary(value: Any, clock: TimeReading) -> bytes:
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise ValueError(f"{told(value)} is no BINARY: texts are read as base64") from None


def _date(value: Any, clock: TimeReading) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    if isinstance(value, str) and clock.format is None:
        try:
            return date.fromisoformat(value.strip())
        except ValueError:
            pass
    moment = read_moment(value, clock).astimezone(ZoneInfo(clock.zone))
    if moment.time() != time():
        raise ValueError(f"{told(value)} has a time of day, which a DATE does not: declare it as TIMESTAMP")
    return moment.date()


def _variant(value: Any, clock: TimeReading) -> Any:
    """Whatever JSON has; a text that is no JSON is a text."""
    try:
        return read_json(value if isinstance(value, str) else write_json(value))
    except (ValueError, TypeError, RecursionError):
        return _string(value, clock)


_SIMPLE: dict[str, Callable[[Any, TimeReading], Any]] = {
    "BOOLEAN": _boolean, **{name: partial(_integer, name=name) for name in _BITS}, "FLOAT": _float, "DOUBLE": _double,
    "STRING": _string, "BINARY": _binary, "DATE": _date, "TIMESTAMP": read_moment, "TIMESTAMP_NTZ": wall_clock,
    "VARIANT": _variant,
}  # fmt: skip


def _wrong(value: Any, kind: object) -> ValueError:
    return ValueError(f"{told(value)} is no {kind}")
