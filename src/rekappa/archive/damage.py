"""A data file that can't be read: which one it is. Spark's error names it sometimes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rekappa.archive.tables import quoted_table
from rekappa.errors import ArchiveError, RekappaError
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.private import planned
from rekappa.iceberg.tasks import read_tasks
from rekappa.spark.computing import compute
from rekappa.spark.ended import ended_jvm
from rekappa.spark.failures import read_failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def naming_damage(spark: SparkSession, table: str, doing: str) -> Iterator[None]:
    """An error inside leaves as `ArchiveError` that names the damaged files, or as it is where none is damaged."""
    try:
        yield
    except RekappaError:
        raise
    except Exception as error:
        if ended_jvm() is not None:
            raise
        files = damaged_files(spark, table)
        if not files:
            raise
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        raise ArchiveError(
            f"Cannot {doing} {table}: can't read file {files[0]}{more}: {read_failure(error).cause}",
            hint="Nothing was changed. Put the file back from a copy; its events may also still be in Kafka.",
        ) from error


def damaged_files(spark: SparkSession, table: str) -> list[str]:
    """The table's data files that can't be read as a whole. Reads all of it, once, and what is damaged again."""
    java = load_table(spark, quoted_table(table))
    return [str(task.file().location()) for task in _unreadable(spark, java, planned(spark, java.newScan()))]


def _unreadable(spark: SparkSession, table: Any, tasks: Sequence[Any]) -> list[Any]:
    """Found by halves: few files are damaged among many."""
    if not tasks or _reads(spark, table, tasks):
        return []
    if len(tasks) == 1:
        return list(tasks)
    half = len(tasks) // 2
    return _unreadable(spark, table, tasks[:half]) + _unreadable(spark, table, tasks[half:])


def _reads(spark: SparkSession, table: Any, tasks: Sequence[Any]) -> bool:
    try:
        with read_tasks(spark, table, tasks) as rows:
            compute(rows)
    except Exception:
        return False
    return True
