"""Saying what is wrong with a configuration: place, value, and what was probably meant."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from rekappa.config.model import AppConfig
from rekappa.config.origin import Origin, Path, dotted, is_secret, shown
from rekappa.config.overrides import nearest
from rekappa.errors import ConfigError
from rekappa.masking import MASK

MAX_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, where it stands, and what to do about it."""

    place: str
    text: str
    hint: str | None = None


def refused(found: Sequence[Problem], name: str) -> ConfigError:
    """One error that lists all problems."""
    if len(found) == 1:
        return ConfigError(f"Cannot use {found[0].place}: {found[0].text}", hint=found[0].hint)
    lines = [f"  {item.place}: {item.text}" + (f" ({item.hint})" if item.hint else "") for item in found[:MAX_SHOWN]]
    more = [f"  and {len(found) - MAX_SHOWN} more"] if len(found) > MAX_SHOWN else []
    return ConfigError("\n".join([f"Cannot use {name}: {len(found)} problems", *lines, *more]))


def place(path: Path, origins: Mapping[Path, Origin], name: str) -> str:
    """Where the value at the path stands; for one that is missing, where its parent stands."""
    for end in range(len(path), 0, -1):
        if path[:end] in origins:
            return str(origins[path[:end]])
    return f"{name}:1"


def walk(item: Mapping[str, Any], values: Any) -> Path:
    """The path in the document that a validation error is about, without the names of union members."""
    location: Sequence[str | int] = item["loc"]
    absent = item["type"] == "missing"
    path: list[str | int] = []
    here = values
    for depth, part in enumerate(location):
        if part in (here if isinstance(here, dict) else range(len(here)) if isinstance(here, list) else ()):
            here = here[part]
        elif not absent or depth < len(location) - 1:
            continue
        path.append(part)
    return tuple(path)


def translated(
    found: Sequence[Mapping[str, Any]], values: Any, origins: Mapping[Path, Origin], name: str
) -> list[Problem]:
    """Pydantic's errors in our words: its own quote the input, which may be a secret."""
    made: dict[tuple[str, str], Problem] = {}
    misspelt: set[str] = set()
    # Unknown keys first: one that is close to a missing key explains why that one is missing.
    for item in sorted(found, key=lambda item: item["type"] != "extra_forbidden"):
        path = walk(item, values)
        text, hint = _words(item, path)
        if item["type"] == "extra_forbidden":
            misspelt.add(f"{path[:-1]} {hint}")
        elif item["type"] == "missing" and f"{path[:-1]} Did you mean {path[-1]!r}?" in misspelt:
            continue
        # A value that fits no member of a union has one error per member: one is enough.
        key = (dotted(path), "" if item["type"].endswith(("_type", "_parsing")) else text)
        made.setdefault(key, Problem(place(path, origins, name), f"{dotted(path) or 'the file'} {text}", hint))
    return list(made.values())


def _words(item: Mapping[str, Any], path: Path) -> tuple[str, str | None]:
    kind, context, given = item["type"], item.get("ctx") or {}, item.get("input")
    value = MASK if is_secret(path) else repr(_short(shown(path, given)))
    if kind == "extra_forbidden":
        return "is not a known key", nearest(str(path[-1]), _keys(item["loc"]))
    if kind in ("missing", "union_tag_not_found"):
        lacking = "type" if kind == "union_tag_not_found" else None
        return (f"has no {lacking}" if lacking else "is missing"), _meaning(item["loc"])
    if kind == "union_tag_invalid":
        tags = [tag.strip(" '") for tag in str(context.get("expected_tags", "")).split(",")]
        return f"has the unknown type {context.get('tag', '')!r}", nearest(str(context.get("tag", "")), tags)
    if kind == "literal_error":
        words = [word.strip(" '") for word in str(context.get("expected", "")).replace(" or ", ", ").split(",")]
        return f"can't be {value}", nearest(str(given), words)
    if kind == "value_error":
        return f"is wrong: {context.get('error')}", None
    if kind == "string_pattern_mismatch":
        return f"can't be {value}", "Use lower-case letters, digits, - and _, beginning with a letter."
    if kind == "string_type":
        return f"must be text, not {value}", "Put it in quotes." if isinstance(given, bool | int | float) else None
    if kind in ("too_short", "model_type", "model_attributes_type", "dict_type"):
        return ("is empty" if kind == "too_short" else f"must be a mapping, not {value}"), None
    message = str(item["msg"])
    for start in ("Input should be a valid ", "Input should be "):
        if message.startswith(start):
            wanted = message.removeprefix(start).split(",")[0]
            return f"must be {_article(wanted)}{wanted}, not {value}", None
    return f"can't be {value}", None


def _article(noun: str) -> str:
    if noun.split()[0] in ("greater", "less", "a", "an", "finite"):
        return ""
    return "an " if noun[0] in "aeiou" else "a "


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= 60 else value[:57] + "…"
    text = str(value)
    return value if len(text) <= 80 else f"{type(value).__name__} of {len(value)}" if hasattr(value, "__len__") else "…"


def _keys(location: Sequence[str | int]) -> list[str]:
    """The keys that the model allows at the place of an unknown one."""
    model: Any = AppConfig
    for part in location[:-1]:
        model = _inside(model, part)
    if isinstance(model, type) and issubclass(model, BaseModel):
        return [field.alias or name for name, field in model.model_fields.items()]
    return []


def _meaning(location: Sequence[str | int]) -> str | None:
    """What the model says of the key at this place."""
    model: Any = AppConfig
    for part in location[:-1]:
        model = _inside(model, part)
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        return None
    return next(
        (field.description for name, field in model.model_fields.items() if location[-1] in (name, field.alias)), None
    )


def _inside(model: Any, part: str | int) -> Any:
    """The type of one member: a field of a model, a value of a dict, or the union member that `part` names."""
    if isinstance(model, type) and issubclass(model, BaseModel):
        for name, field in model.model_fields.items():
            if part in (name, field.alias):
                return field.annotation
        return None
    arguments = typing.get_args(model)
    if typing.get_origin(model) is dict:
        return arguments[1]
    for member in arguments:
        for option in typing.get_args(member) or (member,):
            if isinstance(option, type) and issubclass(option, BaseModel):
                tag = option.model_fields.get("type")
                if option.__name__ == part or (tag is not None and part in typing.get_args(tag.annotation)):
                    return option
    return None
