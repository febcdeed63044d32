"""What a record's bytes ask for, counted before they are decoded: fastavro trusts them.

A few bytes can nest records without end, which overflows the stack and ends the process, or ask for a billion items
that take no bytes. Only a schema that refers to itself, or has lists of such items, lets them; bytes of any other
schema cost what they are long. A number is of ten bytes at most, as Avro has it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rekappa.sources.payloads.wire import Undecodable

DEEPEST = 100
"""Records, lists and maps inside each other; Protobuf allows as many."""
MOST_EMPTY = 10_000
"""Items of a message that take no bytes."""
_LONGEST = 10
_LONG_NUMBER = re.compile(rb"[\x80-\xff]{%d}" % _LONGEST)
"""What every number that is too long holds, and text that is not English may."""
_FIXED = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_RECORDS = ("record", "error")


@dataclass(frozen=True, slots=True)
class Writer:
    """A parsed schema, the types that it names, and whether its messages can ask for more than they are long."""

    schema: Any
    named: Mapping[str, Any]
    open_ended: bool

    @classmethod
    def of(cls, schema: Any) -> Writer:
        named = schema.get("__named_schemas", {}) if isinstance(schema, dict) else {}
        return cls(schema, named, _is_open_ended(schema, named, set(), set()))

    def check(self, body: bytes) -> None:
        """Refuse what asks for too much, with `Undecodable`; looks closely only where it could."""
        if self.open_ended or _LONG_NUMBER.search(body):
            _Walk(body, self.named).over(self.schema)


@dataclass(slots=True)
class _Items:
    """Those that are still to come of a list or a map."""

    kind: Any
    keyed: bool
    left: int = 0


class _Walk:
    """One message, from its first byte to its last; on a stack of its own, which nesting does not overflow."""

    def __init__(self, body: bytes, named: Mapping[str, Any]) -> None:
        self._body, self._named = body, named
        self._at = self._empty = 0
        self._pending: list[tuple[Any, int]] = []

    def over(self, schema: Any) -> None:
        self._pending.append((schema, 0))
        while self._pending:
            kind, depth = self._pending.pop()
            if depth > DEEPEST:
                raise Undecodable(f"it is nested more than {DEEPEST} deep")
            if isinstance(kind, _Items):
                self._items(kind, depth)
            else:
                self._value(_resolved(kind, self._named), depth)

    def _value(self, kind: Any, depth: int) -> None:
        if isinstance(kind, list):
            branch = self._number()
            if not 0 <= branch < len(kind):
                raise Undecodable(f"its union has no type {branch}")
            self._pending.append((kind[branch], depth))
            return
        name = kind["type"] if isinstance(kind, dict) else kind
        if name in _RECORDS:
            self._pending.extend((field["type"], depth + 1) for field in reversed(kind["fields"]))
        elif name in ("array", "map"):
            keyed = name == "map"
            self._pending.append((_Items(kind["values" if keyed else "items"], keyed), depth))
        elif name in ("bytes", "string"):
            self._skip(self._number())
        elif name == "fixed":
            self._skip(kind["size"])
        elif name in _FIXED:
            self._skip(_FIXED[name])
        else:
            self._number()

    def _items(self, items: _Items, depth: int) -> None:
        if items.left == 0:
            items.left = self._number()
            if items.left == 0:
                return
            if items.left < 0:
                items.left = -items.left
                self._number()
            if not items.keyed and _takes_nothing(items.kind, self._named, frozenset()):
                self._empty, items.left = self._empty + items.left, 0
                if self._empty > MOST_EMPTY:
                    raise Undecodable(f"it asks for {self._empty} items that take no bytes")
        self._pending.append((items, depth))
        if items.left:
            items.left -= 1
            if items.keyed:
                self._skip(self._number())
            self._pending.append((items.kind, depth + 1))

    def _number(self) -> int:
        found = 0
        for place in range(_LONGEST):
            if self._at >= len(self._body):
                raise Undecodable("it ends too early")
            byte = self._body[self._at]
            self._at += 1
            found |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
        raise Undecodable(f"a number in it is longer than {_LONGEST} bytes")

    def _skip(self, size: int) -> None:
        if not 0 <= size <= len(self._body) - self._at:
            raise Undecodable("it ends too early")
        self._at += size


def _resolved(kind: Any, named: Mapping[str, Any]) -> Any:
    """The type itself: behind its name, and without what only annotates it."""
    while True:
        if isinstance(kind, str) and kind in named:
            kind = named[kind]
        elif isinstance(kind, dict) and (isinstance(kind["type"], dict | list) or kind["type"] in named):
            kind = kind["type"]
        else:
            return kind


def _inside(kind: Any) -> list[Any]:
    if isinstance(kind, list):
        return kind
    if not isinstance(kind, dict):
        return []
    return [
        *(field["type"] for field in kind.get("fields", ())),
        *(kind[key] for key in ("items", "values") if key in kind),
    ]


def _is_open_ended(kind: Any, named: Mapping[str, Any], around: set[str], done: set[str]) -> bool:
    kind = _resolved(kind, named)
    name = kind.get("name") if isinstance(kind, dict) else None
    if name in around:
        return True
    if name in done:
        return False
    if isinstance(kind, dict) and kind["type"] == "array" and _takes_nothing(kind["items"], named, frozenset()):
        return True
    around = around | {name} if name else around
    if any(_is_open_ended(one, named, around, done) for one in _inside(kind)):
        return True
    if name:
        done.add(name)
    return False


def _takes_nothing(kind: Any, named: Mapping[str, Any], around: frozenset[str]) -> bool:
    """Whether its values have no bytes. A record that holds itself is not such a one: it has no end."""
    kind = _resolved(kind, named)
    if not isinstance(kind, dict):
        return bool(kind == "null")
    if kind["type"] in _RECORDS:
        return kind["name"] not in around and all(
            _takes_nothing(field["type"], named, around | {kind["name"]}) for field in kind["fields"]
        )
    return bool(kind["type"] == "null" or (kind["type"] == "fixed" and kind["size"] == 0))
