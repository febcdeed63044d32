"""Whether a table's files can be read by the names of their columns, as Spark's own Parquet reader does.

Iceberg knows columns by number, so that they can be renamed. Where none ever was, names and numbers say the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from rekappa.iceberg.private import schema_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAME_IN_BOTH = {"boolean", "int", "long", "float", "double", "date", "timestamp", "timestamptz", "string", "binary"}
"""The types of which Spark and Iceberg have the same notion in Parquet, `decimal` beside them."""


def read_by_name(spark: SparkSession, table: Any) -> bool:
    """Whether Spark can read the files of an Iceberg table (the Java one) without Iceberg, but for deleted rows."""
    schemas = table.schemas()
    return table.io().getClass().getSimpleName() == "HadoopFileIO" and names_hold(
        json.loads(schema_json(spark, schemas[number])) for number in schemas
    )


def names_hold(schemas: Iterable[dict[str, Any]]) -> bool:
    """Whether every column has had one name, one number and one type in all of a table's schemas (Iceberg's JSON)."""
    numbers: dict[str, tuple[int, str]] = {}
    names: dict[int, str] = {}
    for schema in schemas:
        for name, number, kind in _columns(schema, ""):
            if kind not in SAME_IN_BOTH and not kind.startswith(("decimal", "struct", "list")):
                return False
            if numbers.setdefault(name, (number, kind)) != (number, kind) or names.setdefault(number, name) != name:
                return False
    return True


def _columns(kind: dict[str, Any], path: str) -> Iterator[tuple[str, int, str]]:
    """Every field, the ones inside others included: its path, its number, its type's name."""
    inner = [(field["name"], field["id"], field["type"]) for field in kind.get("fields", ())]
    if kind["type"] == "list":
        inner.append(("element", kind["element-id"], kind["element"]))
    for name, number, one in inner:
        here = f"{path}.{name}"
        yield here, number, one if isinstance(one, str) else one["type"]
        if not isinstance(one, str):
            yield from _columns(one, here)
