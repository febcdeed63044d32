"""Whether a value fits its column as it is. Arrow refuses most that do not; some it cuts, or takes for something else.

    fits(IntegerType())(1.5)              False: Arrow would make 1 of it
    fits(TimestampType())(1700000000000)  False: it would take it for microseconds
    fits(StringType())                    None: Arrow itself is strict enough

FLOAT keeps about seven digits, so a double is rounded to them; one that is too great for it does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

Fits = Callable[[Any], bool]
_GREATEST_FLOAT = (2 - 2**-23) * 2.0**127
_NUMBERS = (int, float, Decimal)


def fits(kind: DataType) -> Fits | None:
    """What tells whether a value (maps as lists of pairs) fits; None where Arrow is to be asked alone."""
    if isinstance(kind, StructType):
        inside = [(field.name, check) for field in kind.fields if (check := fits(field.dataType)) is not None]
        return _struct(inside) if inside else None
    if isinstance(kind, ArrayType):
        item = fits(kind.elementType)
        return _items(item) if item else None
    if isinstance(kind, MapType):
        key, item = fits(kind.keyType), fits(kind.valueType)
        return _items(_pair(key, item)) if key or item else None
    return next((check for types, check in _PLAIN if isinstance(kind, types)), None)


def _whole(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return not isinstance(value, Decimal) or value == value.to_integral_value()


def _float(value: Any) -> bool:
    return _number(value) and not (isinstance(value, float) and isfinite(value) and abs(value) > _GREATEST_FLOAT)


def _number(value: Any) -> bool:
    return not isinstance(value, bool)


def _time(value: Any) -> bool:
    return not isinstance(value, _NUMBERS)


def _date(value: Any) -> bool:
    return not isinstance(value, (*_NUMBERS, datetime))


_PLAIN: tuple[tuple[type[DataType] | tuple[type[DataType], ...], Fits], ...] = (
    (IntegralType, _whole),
    (FloatType, _float),
    (DoubleType, _number),
    (DateType, _date),
    ((TimestampType, TimestampNTZType, DayTimeIntervalType), _time),
)


def _struct(inside: list[tuple[str, Fits]]) -> Fits:
    return lambda value: not isinstance(value, Mapping) or all(check(value.get(name)) for name, check in inside)


def _items(check: Fits) -> Fits:
    return lambda value: not isinstance(value, list) or all(check(item) for item in value)


def _pair(key: Fits | None, item: Fits | None) -> Fits:
    return lambda pair: (key is None or key(pair[0])) and (item is None or item(pair[1]))
