"""Spark's schema text, read and written without Spark.

    columns("id BIGINT, tags ARRAY<STRING>")

Nullability and comments are read and dropped: every column of a record is nullable.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rekappa.config.overrides import nearest
from rekappa.errors import ConfigError

_SIMPLE = {
    "BOOLEAN": "BOOLEAN", "TINYINT": "TINYINT", "BYTE": "TINYINT", "SMALLINT": "SMALLINT", "SHORT": "SMALLINT",
    "INT": "INT", "INTEGER": "INT", "BIGINT": "BIGINT", "LONG": "BIGINT", "FLOAT": "FLOAT", "REAL": "FLOAT",
    "DOUBLE": "DOUBLE", "DATE": "DATE", "TIMESTAMP": "TIMESTAMP", "TIMESTAMP_LTZ": "TIMESTAMP",
    "TIMESTAMP_NTZ": "TIMESTAMP_NTZ", "STRING": "STRING", "BINARY": "BINARY", "VARIANT": "VARIANT",
}  # fmt: skip
_LENGTHS = ("CHAR", "CHARACTER", "VARCHAR")
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_NAMES = [*_SIMPLE, "VARCHAR", "CHAR", "DECIMAL", "ARRAY", "MAP", "STRUCT"]
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|('(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\")|([^\W]\w*)|([<>(),:]))")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")
MAX_DEPTH = 50


@dataclass(frozen=True, slots=True)
class Simple:
    """A type without parts, by Spark's own name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Decimal:
    precision: int
    scale: int

    def __str__(self) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"


@dataclass(frozen=True, slots=True)
class Array:
    element: Type

    def __str__(self) -> str:
        return f"ARRAY<{self.element}>"


@dataclass(frozen=True, slots=True)
class Map:
    key: Type
    value: Type

    def __str__(self) -> str:
        return f"MAP<{self.key}, {self.value}>"


@dataclass(frozen=True, slots=True)
class Struct:
    fields: tuple[Column, ...]

    def __str__(self) -> str:
        return f"STRUCT<{', '.join(f'{quoted(field.name)}: {field.type}' for field in self.fields)}>"


Type = Simple | Decimal | Array | Map | Struct


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: Type


def written(found: tuple[Column, ...]) -> str:
    """The columns as Spark DDL."""
    return ", ".join(f"{quoted(column.name)} {column.type}" for column in found)


def quoted(name: str) -> str:
    return name if _PLAIN.match(name) else "`" + name.replace("`", "``") + "`"


def columns(text: str) -> tuple[Column, ...]:
    """Read Spark DDL; refuses with `ConfigError` that names what can't be read."""
    return _Parser(text).fields(None)


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise ConfigError(f"Cannot read the schema at {text[at:].strip()[:30]!r}")
            kind = ("name", "text", "word", "sign")[match.lastindex - 1] if match.lastindex else "sign"
            self.tokens.append((kind, match[match.lastindex or 0]))
            at = match.end()
        self.at = 0
        self.depth = 0

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def take(self, *signs: str) -> bool:
        if self.peek()[0] == "sign" and self.peek()[1] in signs:
            self.at += 1
            return True
        return False

    def expect(self, sign: str) -> None:
        if not self.take(sign):
            raise self.refused(f"expected {sign!r}")

    def word(self, *wanted: str) -> bool:
        kind, text = self.peek()
        if kind == "word" and text.upper() in wanted:
            self.at += 1
            return True
        return False

    def refused(self, what: str) -> ConfigError:
        found = repr(self.peek()[1]) if self.peek()[0] != "end" else "the end"
        return ConfigError(
            f"Cannot read the schema at {found}: {what}", hint="Write it like  id BIGINT, event_ts TIMESTAMP"
        )

    def fields(self, end: str | None) -> tuple[Column, ...]:
        found: list[Column] = []
        while end is None or not self.take(end):
            if found:
                self.expect(",")
            kind, name = self.peek()
            if kind not in ("word", "name"):
                raise self.refused("expected a column name")
            self.at += 1
            self.take(":")
            found.append(Column(name.replace("``", "`") if kind == "name" else name, self.type()))
            self.remarks()
            if end is None and self.peek()[0] == "end":
                break
        seen: set[str] = set()
        for column in found:
            if column.name.lower() in seen:
                raise ConfigError(f"Cannot read the schema: column {column.name!r} stands twice")
            seen.add(column.name.lower())
        return tuple(found)

    def remarks(self) -> None:
        while self.peek()[0] == "word":
            if self.word("NOT"):
                if not self.word("NULL"):
                    raise self.refused("expected NULL")
            elif self.word("COMMENT"):
                if self.peek()[0] != "text":
                    raise self.refused("expected the comment in quotes")
                self.at += 1
            else:
                raise self.refused("expected ',' and the next column")

    def type(self) -> Type:
        kind, text = self.peek()
        if kind != "word":
            raise self.refused("expected a type")
        self.at += 1
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ConfigError(f"Cannot read the schema: more than {MAX_DEPTH} levels")
        try:
            return self.rest(text.upper(), text)
        finally:
            self.depth -= 1

    def rest(self, name: str, text: str) -> Type:
        if name == "ARRAY":
            self.expect("<")
            element = self.type()
            self.expect(">")
            return Array(element)
        if name == "MAP":
            self.expect("<")
            key = self.type()
            self.expect(",")
            value = self.type()
            self.expect(">")
            return Map(key, value)
        if name == "STRUCT":
            self.expect("<")
            return Struct(self.fields(">"))
        if name in _DECIMALS:
            numbers = self.numbers()
            precision, scale = (*numbers, 0)[:2] if numbers else (10, 0)
            if not 1 <= precision <= 38 or not 0 <= scale <= precision or len(numbers) > 2:
                raise ConfigError(f"Cannot read the schema: DECIMAL({', '.join(map(str, numbers))}) does not exist")
            return Decimal(precision, scale)
        if name in _LENGTHS:
            # Spark's file and Kafka readers know no lengths: such a column arrives as text.
            self.numbers()
            return Simple("STRING")
        if name in _SIMPLE:
            return Simple(_SIMPLE[name])
        raise ConfigError(f"Cannot read the schema: unknown type {text!r}", hint=nearest(name, _NAMES))

    def numbers(self) -> tuple[int, ...]:
        found: list[int] = []
        if self.take("("):
            while not self.take(")"):
                if found:
                    self.expect(",")
                kind, text = self.peek()
                if kind != "word" or not text.isdecimal() or len(text) > 9:
                    raise self.refused("expected a number")
                self.at += 1
                found.append(int(text))
        return tuple(found)
