"""Every value of a configuration, and who set it. Secrets are masked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from rekappa.config.load import Loaded
from rekappa.config.model import SinkChoice
from rekappa.config.origin import Origin, Path, dotted, shown
from rekappa.timeline import format_duration


@dataclass(frozen=True, slots=True)
class Setting:
    """One value as it may be shown, under the key that `--set` takes."""

    key: str
    value: Any
    origin: Origin


def settings(loaded: Loaded) -> tuple[Setting, ...]:
    """All values, in the order of the model."""
    return tuple(Setting(dotted(path), value, loaded.origin(*path)) for path, value in _leaves(loaded.config, ()))


def masked(loaded: Loaded) -> dict[str, Any]:
    """The whole configuration as it may be shown."""
    tree: dict[str, Any] = {}
    for path, value in _leaves(loaded.config, ()):
        here = tree
        for part in path[:-1]:
            here = here.setdefault(str(part), {})
        here[str(path[-1])] = value
    return tree


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, SinkChoice) and value.plain:
        yield from _leaves(value.sink, path)
    elif isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            yield from _leaves(getattr(value, name), (*path, field.alias or name))
    elif isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    else:
        text = format_duration(value) if isinstance(value, timedelta) else value
        yield path, shown(path, dict(text) if isinstance(text, Mapping) else text)
