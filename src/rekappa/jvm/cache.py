"""The per-user cache: what is downloaded once and used by every project."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/rekappa`, or `~/.cache/rekappa`. Safe to delete: it is filled again when needed."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "rekappa"
