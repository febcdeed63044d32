"""Whether a topic's source has the columns that a lookup of its changes goes by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rekappa.config.ddl import Column, Struct, Type
from rekappa.config.lookups import ChangesLookup
from rekappa.config.overrides import nearest

_ENVELOPE = "before STRUCT<…>, after STRUCT<…>, op STRING"
_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "TIMESTAMP", "DATE")


def wrong_columns(lookup: ChangesLookup, declared: Sequence[Column]) -> Iterator[tuple[str, str | None]]:
    """What is wrong, and what to do about it."""
    known: dict[str, Type] = {column.name: column.type for column in declared}
    if lookup.envelope is None:
        yield from _lacking(lookup, lookup.key, known, "")
        if lookup.deleted is not None:
            yield from _lacking(lookup, [lookup.deleted], known, "")
            kind = str(known.get(lookup.deleted, "BOOLEAN"))
            if kind != "BOOLEAN":
                yield f"has {lookup.deleted!r} as deleted, which is {kind}, not BOOLEAN", None
    else:
        if lookup.deleted is not None:
            yield (
                "can't have deleted with envelope: debezium",
                "The envelope says itself what was deleted: leave it out.",
            )
        rows = [known.get(name) for name in ("before", "after")]
        if not all(isinstance(row, Struct) for row in rows) or str(known.get("op")) != "STRING":
            yield (
                f"has envelope: debezium, and source {lookup.source!r} declares no {_ENVELOPE}",
                "Declare them in its schema, as Debezium sends them, or leave envelope out.",
            )
            return
        for name, row in zip(("before", "after"), rows, strict=True):
            assert isinstance(row, Struct)
            yield from _lacking(lookup, lookup.key, {field.name: field.type for field in row.fields}, f"{name} of ")
    if lookup.sequence is None:
        return
    first, *inside = lookup.sequence.split(".") if lookup.envelope else [lookup.sequence]
    found: Type | None = known.get(first)
    for name in inside:
        fields = found.fields if isinstance(found, Struct) else ()
        found = next((field.type for field in fields if field.name == name), None)
    if found is None:
        yield from _lacking(lookup, [lookup.sequence], known, "")
    elif str(found).split("(")[0] not in (*_NUMBERS, "DECIMAL"):
        yield (
            f"has {lookup.sequence!r} as sequence, which is {found}: of texts '9' comes after '10'",
            "Take a number or a TIMESTAMP that grows with every change.",
        )


def _lacking(
    lookup: ChangesLookup, wanted: Sequence[str], known: dict[str, Type], part: str
) -> Iterator[tuple[str, str | None]]:
    for name in wanted:
        if name not in known:
            yield f"goes by {name!r}, which is no column of {part}source {lookup.source!r}", nearest(name, [*known])
