"""Optional packages that read payloads, imported where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rekappa.errors import SetupError


def package(module: str) -> Any:
    """The module of an optional package; a missing one names the extra to install."""
    try:
        return import_module(module)
    except ImportError as error:
        missing = (error.name or module).partition(".")[0]
        raise SetupError(
            f"Cannot read messages with a schema registry: the package {missing} is not installed",
            hint="pip install 'rekappa[registry]', on Spark's workers too",
        ) from error
