"""When a table's files can be read by their columns' names."""

from __future__ import annotations

from typing import Any

import pytest

from rekappa.replay.names import names_hold


def schema(*fields: tuple[int, str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"id": n, "name": name, "type": kind} for n, name, kind in fields]}


TAGS = {"type": "list", "element-id": 5, "element": schema((6, "key", "string")), "element-required": False}
FIRST = schema((1, "id", "long"), (2, "at", "timestamptz"), (3, "price", "decimal(9,2)"), (4, "tags", TAGS))


def test_one_schema_and_added_columns_hold() -> None:
    assert names_hold([FIRST])
    assert names_hold([FIRST, {**FIRST, "fields": [*FIRST["fields"], {"id": 7, "name": "new", "type": "string"}]}])


@pytest.mark.parametrize(
    "later",
    [
        schema((1, "key", "long")),
        schema((9, "id", "long")),
        schema((1, "id", "int")),
        schema((4, "tags", {**TAGS, "element": schema((6, "label", "string"))})),
    ],
    ids=["renamed", "dropped and added again", "another type", "renamed inside a list"],
)
def test_a_column_that_changed_does_not(later: dict[str, Any]) -> None:
    assert not names_hold([FIRST, later])


@pytest.mark.parametrize("kind", ["uuid", "fixed[16]", "time", {"type": "map"}])
def test_types_that_spark_reads_differently_do_not(kind: Any) -> None:
    assert not names_hold([schema((1, "id", kind))])
