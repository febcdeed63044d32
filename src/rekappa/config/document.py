"""Reading YAML so that every value remembers its line.

Booleans are `true` and `false` only, so that a region may be called `no`; dates stay text; a key that stands
twice, a tag, or an anchor that contains itself is refused. `${NAME}` and `${NAME:-default}` in a value are
taken from the environment; `$${` writes a plain `${`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import yaml  # type: ignore[import-untyped]

from rekappa.config.origin import Origin, Path, dotted
from rekappa.errors import ConfigError

MAX_VALUES = 50_000
_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{")
_CORE = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML with the scalars of version 1.2: no yes/no, no dates, no base-60 numbers."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012


for _tag, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^[-+]?[0-9]+$", list("-+0123456789")),
    ("float", r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", list("-+.0123456789")),
    ("merge", r"^<<$", ["<"]),
):
    _Loader.add_implicit_resolver(_CORE + _tag, re.compile(_pattern), _first)


_START = yaml.Mark("", 0, 0, 0, None, None)


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML text: plain values, and where each of them stands."""

    values: Any
    origins: dict[Path, Origin]


def parse(text: str, file: str, environ: Mapping[str, str]) -> Document:
    """Read YAML text; refuses with `ConfigError` that names file and line."""
    with _told(file):
        node = yaml.compose(text, Loader=_Loader)
        reader = _Reader(file, environ)
        return Document(None if node is None else reader.value(node, ()), reader.origins)


@contextmanager
def _told(file: str) -> Iterator[None]:
    """What the YAML library has to say, in our words."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"Cannot read {file}{line}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"Cannot read {file}: {reason}") from None
    except RecursionError:
        raise ConfigError(f"Cannot read {file}: it is nested too deeply") from None


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable that a file names; `optional` if it has a default wherever it is named."""

    name: str
    optional: bool


def variables(text: str, file: str) -> tuple[Variable, ...]:
    """The variables that YAML text names, in its order, whether they are set or not."""
    with _told(file):
        node = yaml.compose(text, Loader=_Loader)
    found: dict[str, bool] = {}
    seen: set[int] = set()
    waiting = [node] if node is not None else []
    while waiting:
        here = waiting.pop(0)
        if id(here) in seen:
            continue
        seen.add(id(here))
        if isinstance(here, yaml.ScalarNode):
            for match in _VARIABLE.finditer(here.value):
                if match[1] is not None:
                    found[match[1]] = found.get(match[1], True) and match[2] is not None
        else:
            waiting[:0] = [pair[1] if isinstance(pair, tuple) else pair for pair in here.value]
    return tuple(Variable(name, optional) for name, optional in found.items())


def scalar(text: str, name: str) -> Any:
    """The value of an override: a list, a mapping or quoted text in YAML, otherwise one plain word or number."""
    plain = text.strip()
    if not plain:
        return ""
    if plain[0] in "[{'\"":
        return parse(plain.replace("${", "$${"), name, {}).values
    node = yaml.ScalarNode(_Loader("").resolve(yaml.ScalarNode, plain, (True, False)), plain, _START, _START)
    return text if node.tag == _CORE + "str" else _Reader(name, {}).value(node, ())


class _Reader:
    def __init__(self, file: str, environ: Mapping[str, str]) -> None:
        self.file = file
        self.environ = environ
        self.origins: dict[Path, Origin] = {}
        self._open: set[int] = set()
        self._count = 0

    def value(self, node: Any, path: Path) -> Any:
        self._count += 1
        if self._count > MAX_VALUES:
            raise self._refused(node, f"more than {MAX_VALUES} values")
        if id(node) in self._open:
            raise self._refused(node, "an anchor that contains itself")
        self.origins[path] = Origin("file", self.file, node.start_mark.line + 1)
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode) and node.tag == _CORE + "map":
                return self._mapping(node, path)
            if isinstance(node, yaml.SequenceNode) and node.tag == _CORE + "seq":
                return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
            if isinstance(node, yaml.ScalarNode):
                return self._scalar(node, path)
        finally:
            self._open.discard(id(node))
        raise self._refused(node, f"the tag {node.tag.replace(_CORE, '!!')}")

    def _mapping(self, node: Any, path: Path) -> dict[str, Any]:
        made: dict[str, Any] = {}
        merged: list[Any] = []
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._refused(key_node, "a key that is a list or a mapping")
            if key_node.tag == _CORE + "merge":
                merged += value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
                continue
            key = key_node.value
            if key in made:
                first = self.origins[(*path, key)].line
                raise ConfigError(
                    f"Cannot read {self.file}:{key_node.start_mark.line + 1}: {dotted((*path, key))} "
                    f"is already set on line {first}",
                    hint="Keep one of the two.",
                )
            made[key] = self.value(value_node, (*path, key))
            if not isinstance(value_node, yaml.ScalarNode):
                self.origins[(*path, key)] = Origin("file", self.file, key_node.start_mark.line + 1)
        for source in merged:
            if not isinstance(source, yaml.MappingNode):
                raise self._refused(source, "<< with something that is not a mapping")
            for key_node, value_node in source.value:
                if isinstance(key_node, yaml.ScalarNode) and key_node.value not in made:
                    made[key_node.value] = self.value(value_node, (*path, key_node.value))
        return made

    def _scalar(self, node: Any, path: Path) -> Any:
        kind = node.tag.removeprefix(_CORE)
        text: str = node.value
        if kind == "str":
            return self._filled(node, text, path)
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        if kind in ("int", "float"):
            try:
                return int(text) if kind == "int" else float(text)
            except ValueError:
                raise self._refused(node, f"a number like {text[:20]!r}") from None
        raise self._refused(node, f"the tag {node.tag.replace(_CORE, '!!')}")

    def _filled(self, node: Any, text: str, path: Path) -> str:
        used: list[str] = []

        def fill(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            name, fallback = match[1], match[2]
            if name is None:
                raise ConfigError(
                    f"Cannot read {self.file}:{node.start_mark.line + 1}: {dotted(path)} has an unfinished ${{",
                    hint="Write ${NAME} or ${NAME:-default}, or $${ for a plain ${.",
                )
            used.append(name)
            found = self.environ.get(name, fallback)
            if found is None:
                raise ConfigError(
                    f"Cannot read {self.file}:{node.start_mark.line + 1}: {dotted(path)} "
                    f"needs the environment variable {name}, which is not set",
                    hint=f"Set it, or give a default: ${{{name}:-default}}",
                )
            return found

        filled = _VARIABLE.sub(fill, text)
        if used:
            self.origins[path] = Origin("file", self.file, node.start_mark.line + 1, tuple(used))
        return filled

    def _refused(self, node: Any, what: str) -> ConfigError:
        return ConfigError(f"Cannot read {self.file}:{node.start_mark.line + 1}: {what} is not allowed here")
