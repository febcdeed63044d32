"""Rules for rows that are upserted by key, the same for every keyed sink.

No part of a key may be null. Of several rows with one key in a batch the newest is written: the one with the highest
version, where the sink declares one, and then the latest event time; between equally new ones a hash of the row
decides, so that a retry decides alike. Where the sink declares neither, two rows with one key are refused: nothing
could say which of them is right.

Of two batches the later one wins, unless a version says that what is there already is newer. A row that is marked by
the sink's `deletes` takes part in all this, and then removes its key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekappa.errors import SinkError
from rekappa.spark.names import quoted
from rekappa.spark.remedies import NULL_KEY, SAME_KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MARK = "rekappa refuses: "


def with_keys(rows: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """The same rows; a task that meets a null in the key fails before anything after it runs."""
    from pyspark.sql import functions as F

    checked = {
        column: F.coalesce(F.col(quoted(column)), F.raise_error(F.lit(f"{MARK}key column {column} is null")))
        for column in key
    }
    return rows.withColumns(checked)


def newest_per_key(
    rows: DataFrame, key: tuple[str, ...], event_time: str | None, version: str | None = None
) -> DataFrame:
    """One row per key, by the rules above. Problems are raised when the rows are computed; see `refused`."""
    from pyspark.sql import functions as F

    rank = F.struct(*newness(event_time, version), tie_break(rows))
    grouped = (
        with_keys(rows, key)
        .groupBy(*map(quoted, key))
        .agg(F.max_by(whole(rows), rank).alias("row"), F.count("*").alias("n"))
    )
    if event_time or version:
        return grouped.select("row.*")
    said = F.concat_ws(", ", *(F.concat(F.lit(f"{column}="), F.col(quoted(column)).cast("string")) for column in key))
    twice = F.raise_error(F.concat(F.lit(f"{MARK}several rows have the key "), said))
    return grouped.select(F.when(F.col("n") == 1, F.col("row")).otherwise(twice).alias("row")).select("row.*")


def removing(rows: DataFrame, deletes: str | None) -> DataFrame:
    """The rows that remove their key."""
    from pyspark.sql import functions as F

    return rows.where(F.col(quoted(deletes)) if deletes else F.lit(False))


def staying(rows: DataFrame, deletes: str | None) -> DataFrame:
    """The rows that a sink keeps, without the mark."""
    from pyspark.sql import functions as F

    return rows.where(~F.coalesce(F.col(quoted(deletes)), F.lit(False))).drop(deletes) if deletes else rows


def newness(event_time: str | None, version: str | None) -> list[Column]:
    """What rows of one key are ranked by; a null loses to every value."""
    from pyspark.sql import functions as F

    ranked = [F.col(quoted(version))] if version else []
    ranked += [F.col(quoted(event_time)).cast("timestamp")] if event_time else []
    return [part for column in ranked for part in (column.isNotNull(), column)]


def whole(rows: DataFrame) -> Column:
    """A row as one value."""
    from pyspark.sql import functions as F

    return F.struct(*(F.col(quoted(name)) for name in rows.columns))


def tie_break(rows: DataFrame) -> Column:
    """A number made of the row's values alone, so that live runs, retries and replays decide alike."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import MapType

    hashable = [F.col(quoted(field.name)) for field in rows.schema if not isinstance(field.dataType, MapType)]
    return F.xxhash64(*hashable)


def refused(error: Exception, sink: str) -> Exception:
    """The clear error for a failed write: a `SinkError` if a key rule failed, else the error itself."""
    # As it was raised: the words also stand in every plan that could raise them, which other errors show.
    text, raised = str(error), f"[USER_RAISED_EXCEPTION] {MARK}"
    if raised not in text:
        return error
    reason = text.split(raised, 1)[1].splitlines()[0].split(" SQLSTATE")[0].strip()
    return SinkError(f"Cannot write sink {sink!r}: {reason}", hint=NULL_KEY if "is null" in reason else SAME_KEY)
