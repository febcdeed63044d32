"""Looking into single JSON messages: which fields the schema does not know, and what is wrong with one.

Only messages that do not pass the fast way come here, so plain Python is fast enough.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from datetime import datetime
from typing import Any

NUMBERS = {"tinyint", "smallint", "int", "bigint"}


def kind(value: Any) -> str | None:
    """The column type that holds this JSON value; None for null. Objects and arrays are kept as JSON text."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if -(2**63) <= value < 2**63 else "string"
    return "double" if isinstance(value, float) else "string"


def unknown_fields(message: bytes | None, known: Set[str]) -> dict[str, str]:
    """Top-level fields outside `known`, with the type of each; none for what is not a JSON object."""
    try:
        value = json.loads(message or b"")
    except ValueError:
        return {}
    if not isinstance(value, dict):
        return {}
    found = ((name, kind(item)) for name, item in value.items() if name not in known)
    return {name: made for name, made in found if made is not None}


def merged(kinds: Set[str]) -> str:
    """One column type for all the types seen of a field."""
    if len(kinds) == 1:
        return next(iter(kinds))
    return "double" if kinds == {"bigint", "double"} else "string"


def fits(made: str, column: str) -> bool:
    """Whether a JSON value of type `made` can be kept in a column of that type."""
    return made == column or column == "string" or (made == "bigint" and column == "double")


def misfits(message: bytes | None, columns: Mapping[str, str]) -> list[str]:
    """Fields of the message that do not fit these columns, each with why."""
    try:
        value = json.loads(message or b"")
    except ValueError:
        return []
    if not isinstance(value, dict):
        return []
    found = []
    for name, item in value.items():
        made = kind(item)
        if made is None or name not in columns or fits(made, columns[name]):
            continue
        found.append(f"field {name!r}: {_shown(item)} is not {columns[name]}")
    return found


def reason(message: bytes | None, columns: Mapping[str, str]) -> str:
    """Why a JSON message is not an event with these columns, naming the field where one is to blame."""
    if message is None:
        return "null value"
    if not message.strip():
        return "empty value"
    try:
        value = json.loads(message)
    except UnicodeDecodeError:
        return "not UTF-8 text"
    except ValueError as error:
        return f"not JSON: {error}"
    if not isinstance(value, dict):
        return f"not a JSON object: {_shown(value)}"
    for name, item in value.items():
        if name in columns and not _plausible(item, columns[name]):
            return f"field {name!r}: {_shown(item)} is not {columns[name]}"
    return "does not fit the schema"


def _plausible(value: Any, column: str) -> bool:
    base = column.split("(")[0].split("<")[0]
    if value is None or base == "string":
        return True
    if isinstance(value, bool):
        return base == "boolean"
    if isinstance(value, int):
        return base in {"float", "double", "decimal", "timestamp", *NUMBERS} and _in_range(value, base)
    if isinstance(value, float):
        return base in {"float", "double", "decimal"}
    if isinstance(value, str):
        return base == "binary" or (base in {"timestamp", "timestamp_ntz", "date"} and _is_time(value))
    return base == ("array" if isinstance(value, list) else "struct") or (isinstance(value, dict) and base == "map")


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text.strip())
    except ValueError:
        return False
    return True


def _in_range(value: int, base: str) -> bool:
    bits = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}.get(base)
    return bits is None or -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
