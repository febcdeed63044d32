"""Where a value came from, and which values are not to be shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

Path = tuple[str | int, ...]
MASK = "********"
_SECRET = re.compile(
    r"passw(or)?d|passphrase|secret|token|jaas|credential|(private|access|api|account)[._-]?key|key[._-]?file|"
    r"keystore[._]key",
    re.IGNORECASE,
)
_USER_INFO = re.compile(r"(?<=://)([^/\s:@]*):([^/\s@]+)@")


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
    return bool(names) and _SECRET.search(names[-1]) is not None


def shown(path: Path, value: Any) -> Any:
    """The value as it may be printed: secrets masked, also those inside an address."""
    from pydantic import SecretStr

    if isinstance(value, SecretStr) or (is_secret(path) and value not in (None, "", (), [], {})):
        return MASK
    if isinstance(value, str):
        return _USER_INFO.sub(lambda match: f"{match[1]}:{MASK}@", value)
    if isinstance(value, list | tuple):
        return [shown(path, item) for item in value]
    if isinstance(value, dict):
        return {key: shown((*path, str(key)), item) for key, item in value.items()}
    return value
