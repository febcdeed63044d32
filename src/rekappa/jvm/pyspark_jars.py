"""The jars that PySpark ships: Spark itself, and tools of its own that we use too."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from rekappa.errors import SetupError


def pyspark_folder() -> Path:
    """Where PySpark is installed; it need not be imported for that."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise SetupError("Cannot find PySpark: it is not installed", hint="pip install pyspark")
    return Path(found.origin).parent


def pyspark_jars(pattern: str) -> list[Path]:
    """Those whose name fits the pattern (without `.jar`), sorted; refuses when there is none."""
    jars = sorted((pyspark_folder() / "jars").glob(f"{pattern}.jar"))
    if not jars:
        raise SetupError(f"Cannot find {pattern}.jar: PySpark's jars are not installed", hint="pip install pyspark")
    return jars
