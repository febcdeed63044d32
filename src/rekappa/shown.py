"""Values as JSON has them, and as a person reads them: the same for the command line and the console."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

from rekappa.timeline import format_duration, format_instant


def readable(value: Any) -> str:
    """A value as a person reads it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 100_000 else str(value)
    if isinstance(value, float):
        return f"{value:,.2f}".rstrip("0").rstrip(".") if abs(value) >= 1 else f"{value:.3g}"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(readable(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {readable(item)}" for key, item in value.items())
    return str(plain(value))


def plain(value: Any) -> Any:
    """A value as JSON has it: times and durations as text, secrets masked by their own `str`."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, datetime):
        return format_instant(value) if value.tzinfo else value.isoformat()
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Path | bytes):
        return str(value) if isinstance(value, Path) else value.hex()
    return str(value)


def ranges(found: Iterable[tuple[int, int]]) -> str:
    """Stretches of numbers, first and last: `1..4, 7`."""
    return ", ".join(str(low) if low == high else f"{low}..{high}" for low, high in found) or "none"
