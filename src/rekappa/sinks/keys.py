"""Rules for rows that are upserted by key, the same for every keyed sink.

No part of a key may be null. Of several rows with one key in a batch the newest by event time is written; between
equally new ones a hash of the row decides, so that a retry decides alike. Where the sink declares no event time,
two rows with one key are refused: nothing could say which of them is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekappa.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MARK = "rekappa refuses: "


def with_keys(rows: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """The same rows; a task that meets a null in the key fails before anything after it runs."""
    from pyspark.sql import functions as F

    checked = {
        column: F.coalesce(F.col(column), F.raise_error(F.lit(f"{MARK}key column {column} is null"))) for column in key
    }
    return rows.withColumns(checked)


def newest_per_key(rows: DataFrame, key: tuple[str, ...], event_time: str | None) -> DataFrame:
    """One row per key, by the rules above. Problems are raised when the rows are computed; see `refused`."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import MapType

    whole = F.struct(*(F.col(f"`{name}`") for name in rows.columns))
    hashable = [F.col(f"`{field.name}`") for field in rows.schema if not isinstance(field.dataType, MapType)]
    # Nulls last: a row without an event time loses to any row that has one.
    moment = F.col(event_time).cast("timestamp") if event_time else F.lit(None).cast("timestamp")
    rank = F.struct(moment.isNotNull(), moment, F.xxhash64(*hashable))
    grouped = with_keys(rows, key).groupBy(*key).agg(F.max_by(whole, rank).alias("row"), F.count("*").alias("n"))
    if event_time:
        return grouped.select("row.*")
    said = F.concat_ws(", ", *(F.concat(F.lit(f"{column}="), F.col(column).cast("string")) for column in key))
    twice = F.raise_error(F.concat(F.lit(f"{MARK}several rows have the key "), said))
    return grouped.select(F.when(F.col("n") == 1, F.col("row")).otherwise(twice).alias("row")).select("row.*")


def refused(error: Exception, sink: str) -> Exception:
    """The clear error for a failed write: a `SinkError` if a key rule failed, else the error itself."""
    text = str(error)
    if MARK not in text:
        return error
    reason = text.split(MARK, 1)[1].splitlines()[0].split(" SQLSTATE")[0].strip()
    hint = (
        "Filter such rows out in the job, or key the sink by columns that are never null."
        if "is null" in reason
        else f"Set sinks.{sink}.event_time so that the newest row wins, or aggregate to one row per key in the job."
    )
    return SinkError(f"Cannot write sink {sink!r}: {reason}", hint=hint)
