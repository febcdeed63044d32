"""The rows of a table as they were: at a snapshot, or at a tag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekappa.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def rows_at(spark: SparkSession, name: str, version: int | str | None) -> DataFrame:
    """The rows at a snapshot (its id) or a tag (its name), in the columns of that time; none for None."""
    if version is None:
        return spark.table(name).limit(0)
    return spark.read.option("versionAsOf", str(version)).table(name)


def in_columns_of(rows: DataFrame, known: DataFrame) -> DataFrame:
    """The rows in the columns of `known`: one that they lack is null, one that only they have is left out."""
    from pyspark.sql import functions as F

    have = set(rows.columns)
    return rows.select(
        *(
            F.col(quoted(field.name)) if field.name in have else F.lit(None).cast(field.dataType).alias(field.name)
            for field in known.schema
        )
    )
