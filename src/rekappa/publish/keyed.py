"""Publishing into an upsert table that has no event time: the window is the set of staged keys.

One MERGE writes the staged rows; undo is one MERGE that brings back what these keys held before, and removes
those that were new. Rows that the backfill did not make again can't be told from others and stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from rekappa.errors import PublishError
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.history import PUBLISH, UNDO, current_id, publication, snapshot_at
from rekappa.publish.table import TableEffect, published, tag_before
from rekappa.staging.staged import of_keys
from rekappa.validate.diff import diff
from rekappa.validate.result import Rules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EXISTED = "__rekappa_existed__"
_STAMP = "spark.sql.iceberg.snapshot-property."


def effect_of_keys(spark: SparkSession, name: str, rows: DataFrame, key: tuple[str, ...]) -> TableEffect:
    """What upserting the staged rows would change. Touches nothing."""
    spark.catalog.refreshTable(name)
    with diff(of_keys(spark.table(name), rows, key), rows, Rules(key=key, unique=True)) as found:
        counts = {row["kind"]: row["count"] for row in found.rows.groupBy("kind").count().collect()}
    return TableEffect(counts.get("extra", 0), counts.get("different", 0), 0, found.matched, 0, 0, ())


def check_keys_unchanged(
    spark: SparkSession, name: str, rows: DataFrame, key: tuple[str, ...], began: datetime
) -> None:
    """Refuse if somebody changed rows of the staged keys since the backfill began."""
    table = load_table(spark, name)
    since, now = snapshot_at(table, began), current_id(table)
    if now == since:
        return
    before = spark.table(name).limit(0) if since is None else _at(spark, name, str(since))
    _require_same(before, spark.table(name), rows, key, f"Cannot publish to {name}", "since the backfill began")


def publish_keys(spark: SparkSession, name: str, rows: DataFrame, key: tuple[str, ...], run: str) -> bool:
    """Upsert the staged rows; False if the table already holds this publication."""
    table = load_table(spark, name)
    if published(spark, name, run):
        return False
    base = current_id(table)
    if base is not None:
        tags = table.manageSnapshots()
        known = table.refs().containsKey(tag_before(run))
        (tags.replaceTag if known else tags.createTag)(tag_before(run), base).commit()
    same = " AND ".join(f"t.`{column}` = s.`{column}`" for column in key)
    with _stamped(spark, PUBLISH, run), _view(rows, run) as view:
        spark.sql(
            f"MERGE INTO {name} t USING {view} s ON {same} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
    spark.catalog.refreshTable(name)
    return True


def undo_keys(
    spark: SparkSession, name: str, rows: DataFrame, key: tuple[str, ...], run: str, *, force: bool = False
) -> bool:
    """Give the staged keys what they held before; False if it was undone already."""
    from pyspark.sql import functions as F

    table = load_table(spark, name)
    found = publication(table, run)
    if found is None:
        raise PublishError(f"Cannot undo {run} in {name}: the table's history has no publication of it")
    if found.undone:
        return False
    spark.catalog.refreshTable(name)
    if not force:
        _require_same(rows, spark.table(name), rows, key, f"Cannot undo {run} in {name}", "since it was published")
    tagged = table.refs().containsKey(tag_before(run))
    before = _at(spark, name, f"'{tag_before(run)}'") if tagged else spark.table(name).limit(0)
    columns = [column for column in spark.table(name).columns if column not in key]
    kept = before.select(*key, *(column for column in columns if column in before.columns))
    kept = kept.withColumn(_EXISTED, F.lit(True))
    target = rows.select(*key).join(kept, list(key), "left").withColumn(_EXISTED, F.coalesce(_EXISTED, F.lit(False)))
    for column in columns:
        if column not in target.columns:
            target = target.withColumn(column, F.lit(None).cast(spark.table(name).schema[column].dataType))
    same = " AND ".join(f"t.`{column}` = s.`{column}`" for column in key)
    every = [*key, *columns]
    updates = ", ".join(f"t.`{column}` = s.`{column}`" for column in every)
    names, values = (", ".join(f"{side}`{column}`" for column in every) for side in ("", "s."))
    with _stamped(spark, UNDO, run), _view(target, run) as view:
        spark.sql(
            f"MERGE INTO {name} t USING {view} s ON {same} "
            f"WHEN MATCHED AND NOT s.{_EXISTED} THEN DELETE WHEN MATCHED THEN UPDATE SET {updates} "
            f"WHEN NOT MATCHED AND s.{_EXISTED} THEN INSERT ({names}) VALUES ({values})"
        )
    spark.catalog.refreshTable(name)
    return True


def _at(spark: SparkSession, name: str, version: str) -> DataFrame:
    return spark.sql(f"SELECT * FROM {name} VERSION AS OF {version}")


def _require_same(
    before: DataFrame, now: DataFrame, staged: DataFrame, key: tuple[str, ...], what: str, since: str
) -> None:
    """The table's history does not say which keys a commit touched, so the rows themselves are compared."""
    with diff(of_keys(before, staged, key), of_keys(now, staged, key), Rules(key=key)) as found:
        changed = found.rows.count() if found.matched < max(found.production, found.staging) else 0
    if changed:
        raise PublishError(
            f"{what}: {changed} of its keys were changed by somebody else {since}",
            hint="Backfill again to take the change in, or give --force to go on all the same.",
        )


@contextmanager
def _stamped(spark: SparkSession, stamp: str, run: str) -> Iterator[None]:
    """SQL takes no write options: the stamp goes through the session."""
    spark.conf.set(f"{_STAMP}{stamp}", run)
    try:
        yield
    finally:
        spark.conf.unset(f"{_STAMP}{stamp}")


@contextmanager
def _view(rows: DataFrame, run: str) -> Iterator[str]:
    name = f"rekappa_publish_{run}"
    rows.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        rows.sparkSession.catalog.dropTempView(name)
