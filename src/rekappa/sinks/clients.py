"""Optional client packages, imported where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rekappa.errors import SetupError


def client(module: str, extra: str) -> Any:
    """The module of an optional package; a missing one names the extra to install."""
    try:
        return import_module(module)
    except ImportError as error:
        missing = error.name or module
        raise SetupError(
            f"Cannot use a {extra} sink: the package {missing.partition('.')[0]} is not installed",
            hint=f"pip install 'rekappa[{extra}]'",
        ) from error
