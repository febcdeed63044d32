"""The jars that PySpark ships: Spark itself, and tools of its own that we use too."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from rekappa.errors import SetupError


def pyspark_jars(pattern: str) -> list[Path]:
    """Those whose name fits the pattern (without `.jar`), sorted; refuses when there is none."""
    found = find_spec("pyspark")
    folder = Path(found.origin).parent / "jars" if found and found.origin else None
    jars = sorted(folder.glob(f"{pattern}.jar")) if folder else []
    if not jars:
        raise SetupError(f"Cannot find {pattern}.jar: PySpark's jars are not installed", hint="pip install pyspark")
    return jars
