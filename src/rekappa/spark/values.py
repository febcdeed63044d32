"""Values of a collected row as JSON can hold them."""

from __future__ import annotations

from datetime import UTC, date
from math import isfinite
from typing import TYPE_CHECKING, Any

from rekappa.timeline import format_instant

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def plain_value(value: Any, kind: DataType) -> Any:
    """Bytes as hex, decimals and intervals as text, instants in UTC and marked so, NaN and infinity as words."""
    from pyspark.sql.types import ArrayType, MapType, StructType, TimestampType, VariantType

    if isinstance(value, float) and not isfinite(value):
        return str(value)  # JSON has no such number, and null would hide the difference.
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(kind, StructType):
        return {field.name: plain_value(item, field.dataType) for field, item in zip(kind, value, strict=True)}
    if isinstance(kind, ArrayType):
        return [plain_value(item, kind.elementType) for item in value]
    if isinstance(kind, MapType):
        return {str(plain_value(key, kind.keyType)): plain_value(item, kind.valueType) for key, item in value.items()}
    if isinstance(kind, TimestampType):
        # Spark hands instants over as local times without a zone.
        return format_instant(value.astimezone(UTC))
    if isinstance(kind, VariantType):
        return value.toPython()
    if isinstance(value, bytes | bytearray):
        return value.hex()
    return value.isoformat() if isinstance(value, date) else str(value)
