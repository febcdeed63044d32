"""What Spark's Python workers may import from."""

from __future__ import annotations

from pathlib import Path

from rekappa.spark.workers import trimmed

SPARKS = ["/opt/spark/python/lib/pyspark.zip", "/opt/spark/python/lib/py4j-0.10.9.9-src.zip"]


def _installed(folder: Path) -> str:
    for name in ("pyspark", "py4j"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").touch()
    return str(folder)


def test_archives_that_nothing_is_imported_from_are_left_out(tmp_path: Path) -> None:
    site = _installed(tmp_path)
    path = [*SPARKS, "/opt/spark/jars/spark-core.jar", "/opt/mine.zip", site]
    assert trimmed(path) == [site, "/opt/mine.zip"]


def test_sparks_own_zip_files_stay_where_there_is_no_other_pyspark(tmp_path: Path) -> None:
    path = [*SPARKS, "/opt/spark/jars/spark-core.jar", str(tmp_path)]
    assert trimmed(path) == [*SPARKS, str(tmp_path)]
