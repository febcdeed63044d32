"""Asking: a statement that only reads, over an app's tables, cut after so many rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rekappa.errors import InputError, RekappaError, WorkFailed
from rekappa.query.statement import mentioned, refusal, require_query, with_plain_names
from rekappa.query.tables import Table
from rekappa.spark.failures import read_failure
from rekappa.spark.private import changes_something
from rekappa.spark.values import plain_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows as JSON can hold them, instants in UTC. `rows` can be gone through once; `limit` is None for all."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]
    limit: int | None


def ask(spark: SparkSession, known: Sequence[Table], sql: str, limit: int | None) -> Answer:
    """Run the statement. One row more than `limit` is asked for and given, so that one sees whether there are more.

    Refuses what would change something, and names that are not known, before anything is run.
    """
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    require_query(sql)
    by_name = {table.name: table for table in known}
    written = with_plain_names(sql, by_name)
    absent: dict[str, RekappaError] = {}
    try:
        change = changes_something(spark, written)
        if change is not None:
            raise refusal(change)
        for name in sorted(mentioned(sql, by_name)):
            try:
                by_name[name].open(spark).createOrReplaceTempView(f"`{name}`")
            except RekappaError as error:
                # It may be a column's name only: Spark says so if it is not.
                absent[name] = error
                spark.catalog.dropTempView(f"`{name}`")
        frame = spark.sql(written)
    except ParseException as error:
        raise InputError(f"Cannot read the query: {_first_line(error)}") from None
    except AnalysisException as error:
        for name, why in absent.items():
            if f"`{name}`".lower() in str(error).lower():
                raise why from None
        raise InputError(f"Cannot run the query: {_first_line(error)}", hint=_tables(known)) from None
    except PySparkException as error:
        raise InputError(f"Cannot run the query: {_first_line(error)}") from None
    return Answer(tuple(frame.columns), _rows(frame, limit), limit)


def _rows(frame: DataFrame, limit: int | None) -> Iterator[tuple[Any, ...]]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    kinds = [field.dataType for field in frame.schema.fields]
    try:
        for row in frame.limit(limit + 1).collect() if limit is not None else frame.toLocalIterator():
            yield tuple(plain_value(value, kind) for value, kind in zip(row, kinds, strict=True))
    except PySparkException as error:
        raise WorkFailed(f"The query failed: {_first_line(error)}") from None
    except Py4JError as error:
        found = read_failure(error)
        named = f" (file {found.file})" if found.file and found.file not in found.cause else ""
        raise WorkFailed(f"The query failed: {found.cause}{named}", hint=found.remedy or None) from None
    except (ValueError, OverflowError) as error:
        raise WorkFailed(
            f"The query's answer can't be shown: {error}", hint="Cast times outside the years 1 to 9999 to STRING."
        ) from None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def _tables(known: Sequence[Table]) -> str:
    return f"Tables: {', '.join(table.name for table in known)}; with --run also staging.SINK; or full names."
