"""Where the jars are."""

from __future__ import annotations

import os
from pathlib import Path


def jars(conf: str) -> list[Path]:
    return sorted(Path(os.environ["REKAPPA_JARS"], conf).glob("*.jar"))
