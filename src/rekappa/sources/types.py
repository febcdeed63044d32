"""Declared columns as Spark's types, made without asking Spark: to read its own schema text costs a fresh JVM half a
second."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rekappa.config.ddl import Array, Column, Decimal, Map, Struct, Type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def struct_type(columns: Iterable[Column]) -> StructType:
    """The columns as one struct, all nullable."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(column.name, spark_type(column.type)) for column in columns])


def spark_type(kind: Type) -> DataType:
    from pyspark.sql import types

    match kind:
        case Struct(fields):
            return struct_type(fields)
        case Array(element):
            return types.ArrayType(spark_type(element))
        case Map(key, value):
            return types.MapType(spark_type(key), spark_type(value))
        case Decimal(precision, scale):
            return types.DecimalType(precision, scale)
    return {
        "BOOLEAN": types.BooleanType,
        "TINYINT": types.ByteType,
        "SMALLINT": types.ShortType,
        "INT": types.IntegerType,
        "BIGINT": types.LongType,
        "FLOAT": types.FloatType,
        "DOUBLE": types.DoubleType,
        "DATE": types.DateType,
        "TIMESTAMP": types.TimestampType,
        "TIMESTAMP_NTZ": types.TimestampNTZType,
        "STRING": types.StringType,
        "BINARY": types.BinaryType,
        "VARIANT": types.VariantType,
    }[kind.name]()
