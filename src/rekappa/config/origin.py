"""Where a value came from, and which values are not to be shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rekappa.masking import MASK, hidden, is_secret_name

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """The layer that gave a value: a line of a file, an environment variable, a --set, or nobody."""

    kind: Literal["default", "file", "environment", "set"]
    name: str = ""
    line: int | None = None
    variables: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.kind == "default":
            return "default"
        place = self.name if self.line is None else f"{self.name}:{self.line}"
        return f"{place} (from {', '.join(self.variables)})" if self.variables else place


DEFAULT = Origin("default")


def dotted(path: Path) -> str:
    """A path as `--set` takes it."""
    if len(path) == 4 and path[0] == "profiles" and str(path[3]).startswith("spark."):
        path = (*path[:2], path[3])
    return ".".join(str(part) for part in path)


def is_secret(path: Path) -> bool:
    """Whether the value's own key says that it must not be shown."""
    names = [part for part in path if isinstance(part, str)]
    return bool(names) and is_secret_name(names[-1])


def shown(path: Path, value: Any) -> Any:
    """The value as it may be printed: secrets masked, also those inside an address or a connection string."""
    from pydantic import SecretStr

    if isinstance(value, SecretStr):
        return MASK
    if is_secret(path) and not isinstance(value, bool) and value not in (None, "", (), [], {}):
        return MASK
    if isinstance(value, str):
        return hidden(value)
    if isinstance(value, list | tuple):
        return [shown(path, item) for item in value]
    if isinstance(value, dict):
        return {key: shown((*path, str(key)), item) for key, item in value.items()}
    return value
