"""JSON with every digit that was written: no number passes through a float on its way."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any


def read_json(text: str, members: Callable[[list[tuple[str, Any]]], Any] = dict) -> Any:
    """The value that the text says, fractions as Decimal; `members` makes an object of its names and values."""
    return json.loads(text, object_pairs_hook=members, parse_float=Decimal)


def write_json(value: Any) -> str:
    """The text for a value that JSON can say; raises `TypeError` for any other."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(key))}: {write_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(write_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def told(value: Any) -> str:
    """A value as a person would recognise it in an error."""
    return str(value) if isinstance(value, Decimal) else repr(value)
