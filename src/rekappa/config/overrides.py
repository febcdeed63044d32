"""The layers above the file: environment variables, then --set.

    REKAPPA__SOURCES__IMPRESSIONS__SELECTED=backfill
    --set sources.impressions.selected=backfill

Values are YAML, so `false`, `0`, `[]` and the empty text are values like any other. A Spark property and a
key under `options` keep their own dots: `profiles.backfill.spark.sql.shuffle.partitions` is one key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from rekappa.config.document import scalar
from rekappa.config.origin import Origin, Path, dotted, is_secret
from rekappa.errors import ConfigError
from rekappa.masking import hidden

PREFIX = "REKAPPA__"
_NAMED = {"sources": "source", "sinks": "sink", "candidates": "candidate"}


@dataclass(frozen=True, slots=True)
class Override:
    """One value from outside the file. `text` is what was written, before it was read as YAML."""

    path: tuple[str, ...]
    value: Any
    text: str
    origin: Origin


def from_environment(environ: Mapping[str, str], values: Mapping[str, Any]) -> Iterator[Override]:
    """Every REKAPPA__A__B variable, matched to existing keys whatever their case."""
    for name in sorted(environ):
        if not name.upper().startswith(PREFIX):
            continue
        parts = name[len(PREFIX) :].split("__")
        if not all(parts):
            raise ConfigError(
                f"Cannot use environment variable {name}: an empty part between double underscores",
                hint=f"Write it like {PREFIX}SOURCES__IMPRESSIONS__SELECTED.",
            )
        parts = [part.lower() if part.isupper() else part for part in parts]
        path = _matched(joined(parts), values)
        value = _value(path, environ[name], f"environment variable {name}")
        yield Override(path, value, environ[name], Origin("environment", name))


def from_flags(flags: Sequence[str]) -> Iterator[Override]:
    """Every --set a.b.c=value, in the order given."""
    for flag in flags:
        key, equals, text = flag.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            raise ConfigError(
                f"Cannot use --set {key}: write it as a.b.c=value",
                hint="For example --set profiles.backfill.spark.sql.shuffle.partitions=16",
            )
        path = joined(parts)
        value = _value(path, text, f"--set {key}")
        if _holds_secret(path, value) or hidden(text) != text:
            variable = PREFIX + "__".join(part.upper() if part.islower() else part for part in parts)
            raise ConfigError(
                f"Cannot use --set {key.strip()}: a secret on a command line can be read by every user of the machine",
                hint=f"Set the environment variable {variable}, or write ${{NAME}} in the file.",
            )
        yield Override(path, value, text, Origin("set", f"--set {key.strip()}"))


def _holds_secret(path: Path, value: Any) -> bool:
    """Whether a secret stands at the path, or at any key inside a mapping or list there."""
    if isinstance(value, Mapping):
        return any(_holds_secret((*path, str(key)), inner) for key, inner in value.items())
    if isinstance(value, list):
        return any(_holds_secret(path, inner) for inner in value)
    return value not in (None, "") and is_secret(path)


def joined(parts: Sequence[str]) -> tuple[str, ...]:
    """The path of a dotted key: Spark properties and options are one key, dots and all."""
    if len(parts) > 3 and parts[0] == "profiles" and parts[2] == "spark":
        rest = parts[3:] if parts[3] == "spark" else parts[2:]
        return (parts[0], parts[1], "spark", ".".join(rest))
    if len(parts) > 3 and parts[0] in ("clusters", "catalogs") and parts[2] == "options":
        return (*parts[:3], ".".join(parts[3:]))
    return tuple(parts)


def apply(override: Override, values: dict[str, Any], origins: dict[Path, Origin]) -> None:
    """Put one override into the tree; what stood at its path before is gone, whatever the new value is."""
    here: dict[str, Any] = values
    path = override.path
    for depth, part in enumerate(path[:-1]):
        if part not in here or here[part] is None:
            _refuse_new_name(override, depth, here)
            here[part] = {}
            origins[path[: depth + 1]] = override.origin
        if not isinstance(here[part], dict):
            raise ConfigError(
                f"Cannot use {override.origin}: {dotted(path[: depth + 1])} is a single value and holds no keys"
            )
        here = here[part]
    if not isinstance(override.value, dict):
        _refuse_new_name(override, len(path) - 1, here)
    here[path[-1]] = override.value
    for old in [known for known in origins if known[: len(path)] == path]:
        del origins[old]
    _record(path, override.value, override.origin, origins)


def _record(path: Path, value: Any, origin: Origin, origins: dict[Path, Origin]) -> None:
    origins[path] = origin
    if isinstance(value, dict):
        for key, item in value.items():
            _record((*path, key), item, origin, origins)


def _refuse_new_name(override: Override, depth: int, siblings: Mapping[str, Any]) -> None:
    """An override changes a source or sink that exists: a new name is a slip of the pen."""
    if depth == 0 or override.path[depth - 1] not in _NAMED or override.path[depth] in siblings:
        return
    kind, name = _NAMED[override.path[depth - 1]], override.path[depth]
    raise ConfigError(f"Cannot use {override.origin}: there is no {kind} {name!r}", hint=nearest(name, siblings))


def nearest(name: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    """A hint that names the closest known word, or all of them."""
    words = [str(word) for word in known]
    close = get_close_matches(name, words, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Known: {', '.join(words)}." if words else "There are none."


def _matched(path: tuple[str, ...], values: Mapping[str, Any]) -> tuple[str, ...]:
    found: list[str] = []
    here: Any = values
    for part in path:
        keys = here if isinstance(here, Mapping) else {}
        known = part if part in keys else next((key for key in keys if key.lower() == part.lower()), part)
        found.append(known)
        here = keys.get(known)
    return tuple(found)


def _value(path: tuple[str, ...], text: str, name: str) -> Any:
    if is_secret(path):
        return text
    try:
        return scalar(text, name)
    except ConfigError as error:
        if text.lstrip()[0] in "[{":
            raise ConfigError(f"Cannot use {name}: its value is not a list or mapping in YAML") from error
        return text
