"""Publishing and undoing one staged window in one Iceberg table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from rekappa.errors import PublishError
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.footprint import footprint
from rekappa.iceberg.history import PUBLISH, UNDO, current_id, publication, snapshot_at
from rekappa.iceberg.span import Span
from rekappa.iceberg.window import Edit, Replaced, drop_branch, refuse_changes, replace_window
from rekappa.validate.diff import diff
from rekappa.validate.result import Rules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class TableEffect:
    """What replacing the window would change: rows, files and partitions."""

    added: int
    changed: int
    removed: int
    unchanged: int
    files_dropped: int
    files_rewritten: int
    partitions: tuple[str, ...]


def tag_before(run: str) -> str:
    """The tag that marks the table's state before this run was published."""
    return f"rekappa_before_{run}"


def published(spark: SparkSession, name: str, run: str) -> bool:
    """Whether the table, by its own history, holds this run's publication now."""
    found = publication(load_table(spark, name), run)
    return found is not None and not found.undone


def effect(spark: SparkSession, name: str, span: Span, rows: DataFrame, rules: Rules) -> TableEffect:
    """What publishing `rows` would change. Touches nothing; refuses null and duplicate keys where they must not be."""
    from pyspark.sql import functions as F

    spark.catalog.refreshTable(name)
    table = load_table(spark, name)
    prints = footprint(spark, table, span, current_id(table))
    with diff(spark.table(name).where(span.inside()), rows, rules) as found:
        counts = {
            row["kind"]: row["count"] for row in found.rows.groupBy("kind").agg(F.count("*").alias("count")).collect()
        }
    return TableEffect(
        added=counts.get("extra", 0),
        changed=counts.get("different", 0),
        removed=counts.get("missing", 0),
        unchanged=found.matched,
        files_dropped=len(prints.whole),
        files_rewritten=len(prints.edge),
        partitions=prints.partitions,
    )


def check_unchanged(spark: SparkSession, name: str, span: Span, run: str, began: datetime) -> None:
    """Refuse, naming who and when, if somebody changed the window since the backfill began."""
    table = load_table(spark, name)
    refuse_changes(spark, table, name, span, Edit(run, {}, since=snapshot_at(table, began)))


def check_keys(spark: SparkSession, name: str, span: Span, rows: DataFrame, key: tuple[str, ...]) -> None:
    """Refuse staged keys that production holds outside the window: both rows would be there afterwards.

    Only files whose key bounds overlap the staged keys are read.
    """
    from pyspark.sql import functions as F

    bounds = rows.agg(*(f(F.col(k)).alias(f"{f.__name__}_{k}") for k in key for f in (F.min, F.max))).first()
    others = spark.table(name).where(~span.inside())
    for k in key:
        if bounds is None or bounds[f"min_{k}"] is None:
            return
        others = others.where(F.col(k).between(bounds[f"min_{k}"], bounds[f"max_{k}"]))
    clashing = others.select(*key).join(rows.select(*key), list(key), "left_semi")
    some = clashing.take(4)
    if some:
        shown = "; ".join(", ".join(f"{k}={row[k]}" for k in key) for row in some[:3])
        raise PublishError(
            f"Cannot publish to {name}: keys of the window are in production outside it too: {shown}"
            + (" and more" if len(some) > 3 else ""),
            hint="Backfill a window that covers these rows as well.",
        )


def publish_table(
    spark: SparkSession, name: str, span: Span, rows: DataFrame, run: str, began: datetime, *, force: bool = False
) -> Replaced | None:
    """Replace the window by `rows`; None if the table already holds this publication."""
    table = load_table(spark, name)
    if published(spark, name, run):
        drop_branch(table, Edit(run, {}).branch)
        return None
    since = None if force else snapshot_at(table, began)
    edit = Edit(run, {PUBLISH: run}, since=since, checked=not force, tag=tag_before(run))
    return replace_window(spark, name, span, rows, edit)


def undo_table(spark: SparkSession, name: str, span: Span, run: str, *, force: bool = False) -> Replaced | None:
    """Give the window the rows it had before; None if it was undone already.

    What others appended elsewhere since then stays. A change of this very window since then stops it, unless forced.
    """
    table = load_table(spark, name)
    found = publication(table, run)
    if found is None:
        raise PublishError(
            f"Cannot undo {run} in {name}: the table's history has no publication of it",
            hint="Its snapshots may have expired; a tag keeps the state before but not the record."
            if _tagged(table, run)
            else None,
        )
    if found.undone:
        drop_branch(table, Edit(run, {}).branch)
        return None
    if _tagged(table, run):
        before = spark.sql(f"SELECT * FROM {name} VERSION AS OF '{tag_before(run)}'").where(span.inside())
    elif found.parent is None:
        before = spark.table(name).limit(0)
    else:
        raise PublishError(
            f"Cannot undo {run} in {name}: its tag {tag_before(run)} is gone",
            hint="`rekappa clean` removes it with staging.",
        )
    known = spark.table(name)
    for column in known.columns:
        if column not in before.columns:
            before = before.selectExpr(
                "*", f"CAST(NULL AS {known.schema[column].dataType.simpleString()}) AS `{column}`"
            )
    edit = Edit(run, {UNDO: run}, since=found.snapshot, checked=not force)
    return replace_window(spark, name, span, before, edit)


def _tagged(table: object, run: str) -> bool:
    return bool(table.refs().containsKey(tag_before(run)))  # type: ignore[attr-defined]
