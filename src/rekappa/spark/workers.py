"""The process from which Spark forks its Python workers: Spark's own, made ready to work.

    spark.python.daemon.module = rekappa.spark.workers

Between two tasks Spark's worker reads the directory of every zip file on its path again (Spark's own jar is one of
them) and collects garbage among all that was ever imported: about a tenth of a second for every task of a job that
runs Python of its own, several times what a small micro-batch needs. So here the path holds no archive that nothing
is imported from, and what is imported before the fork is kept from the collector. PyArrow is loaded once instead of
once in each worker.

Runs before Spark's modules are imported, so only the standard library may be used at the top.
"""

from __future__ import annotations

import gc
import sys
from importlib.machinery import PathFinder
from pathlib import Path


def trimmed(path: list[str]) -> list[str]:
    """The import path without jars, and without Spark's zip files where PySpark is installed as a package."""
    packages = [entry for entry in path if not entry.endswith((".jar", ".zip"))]
    if PathFinder.find_spec("pyspark", packages) and PathFinder.find_spec("py4j", packages):
        return [entry for entry in packages if entry] + [
            entry for entry in path if entry.endswith(".zip") and not _is_sparks(entry)
        ]
    return [entry for entry in path if not entry.endswith(".jar")]


def _is_sparks(entry: str) -> bool:
    name = Path(entry).name
    return name == "pyspark.zip" or name.startswith("py4j-")


def serve() -> None:
    """Fork workers until Spark closes our standard input."""
    sys.path[:] = trimmed(sys.path)
    sys.path_importer_cache.clear()
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401
    from pyspark.daemon import manager
    from pyspark.sql import datasource  # noqa: F401

    gc.collect()
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    serve()
