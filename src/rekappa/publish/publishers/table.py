"""Iceberg tables: one atomic commit, to publish and to undo.

A table with an event time has its window replaced. One without, that is written by key, has the rows of the staged
keys replaced: rows that the backfill did not make again can't be told from others and stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rekappa.errors import PublishError
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.history import PUBLISH, UNDO, current_id, publication, tag_before
from rekappa.iceberg.past import in_columns_of, rows_at
from rekappa.iceberg.replace import Edit, drop_branch, refuse_changes, replace_rows
from rekappa.iceberg.selection import Selection
from rekappa.publish.plan import Effect, PublishState, SinkPlan
from rekappa.publish.publishers.contract import Begin, Part
from rekappa.validate.diff import diff, require_same_columns
from rekappa.validate.result import Rules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class TablePublisher:
    """`chosen` says which rows are replaced. `key` is what rows are compared by, `unique` that it stands once among
    them, `nowhere_else` that it must not stand outside of them either."""

    part: Part
    target: str
    chosen: Selection
    key: tuple[str, ...] = ()
    unique: bool = False
    nowhere_else: bool = False
    stays: str | None = None

    def state(self, recorded: PublishState) -> PublishState:
        if not self.part.spark.catalog.tableExists(self.target):
            return PublishState.NEVER
        found = publication(self._table, self.part.run)
        if found is None:
            return PublishState.NEVER
        return PublishState.UNDONE if found.undone else PublishState.PUBLISHED

    def look(self, *, force: bool) -> tuple[Effect, str | None]:
        spark, part = self.part.spark, self.part
        if not spark.catalog.tableExists(self.target):
            raise PublishError(
                f"Cannot publish sink {part.sink!r}: production table {self.target} does not exist",
                hint="Run the app live once, or create the table.",
            )
        spark.catalog.refreshTable(self.target)
        table = self._table
        base = current_id(table)
        require_same_columns(spark.table(self.target), part.rows)
        require_inside(part.rows, self.chosen, part.sink)
        if not force:
            self._refuse_changes(table)
        prints = self.chosen.footprint(spark, table, self.target, base)
        held = in_columns_of(rows_at(spark, self.target, base), spark.table(self.target))
        with diff(self.chosen.of(held), part.rows, Rules(key=self.key, unique=self.unique)) as found:
            counts = {row["kind"]: row["count"] for row in found.rows.groupBy("kind").count().collect()}
        if self.nowhere_else:
            require_keys_inside(held, part.keys, self.chosen, self.key, self.target)
        effect = Effect(
            added=counts.get("extra", 0),
            changed=counts.get("different", 0),
            removed=counts.get("missing", 0),
            unchanged=found.matched,
            files_dropped=len(prints.whole),
            files_rewritten=len(prints.edge),
            partitions=prints.partitions,
        )
        return effect, None if base is None else str(base)

    def _refuse_changes(self, table: Any) -> None:
        """By anybody else, since the backfill was created."""
        if not self.part.known:
            raise PublishError(
                f"Cannot tell who changed {self.target}: run {self.part.run} has no note of what it was before",
                hint="Backfill again, or give --force to publish without this check.",
            )
        since = Edit(self.part.run, {}, since=self.part.baseline)
        refuse_changes(self.part.spark, table, self.target, self.chosen, since)

    def publish(self, plan: SinkPlan, begin: Begin) -> Effect:
        run = self.part.run
        if self.state(plan.state) is PublishState.PUBLISHED:
            drop_branch(self._table, Edit(run, {}).branch)
            return Effect(unchanged=plan.effect.added + plan.effect.changed + plan.effect.unchanged)
        since = None if plan.base is None else int(plan.base)
        edit = Edit(run, {PUBLISH: run}, since=since, tag=tag_before(run))
        replace_rows(self.part.spark, self.target, self.chosen, self.part.rows, edit)
        return plan.effect

    def undo(self, begin: Begin, *, force: bool) -> Effect:
        """What others appended elsewhere since then stays. A change of these very rows stops it, unless forced."""
        spark, run, table = self.part.spark, self.part.run, self._table
        found = publication(table, run)
        if found is None:
            raise PublishError(
                f"Cannot undo {run} in {self.target}: the table's history has no publication of it",
                hint="Its snapshots may have expired." if self._tagged(table) else None,
            )
        if found.undone:
            drop_branch(table, Edit(run, {}).branch)
            return Effect()
        if not self._tagged(table) and found.parent is not None:
            raise PublishError(
                f"Cannot undo {run} in {self.target}: its tag {tag_before(run)} is gone",
                hint="`rekappa clean` removes it with staging.",
            )
        known = spark.table(self.target)
        held = rows_at(spark, self.target, tag_before(run) if self._tagged(table) else None)
        before = self.chosen.of(in_columns_of(held, known))
        edit = Edit(run, {UNDO: run}, since=found.snapshot, checked=not force)
        replace_rows(spark, self.target, self.chosen, before, edit)
        return Effect()

    @property
    def _table(self) -> Any:
        return load_table(self.part.spark, self.target)

    def _tagged(self, table: Any) -> bool:
        return bool(table.refs().containsKey(tag_before(self.part.run)))


def require_inside(rows: DataFrame, chosen: Selection, sink: str) -> None:
    """Refuse staged rows that are not of the window."""
    outside = sum(part.count() for part in chosen.others(rows))
    if outside:
        raise PublishError(
            f"Cannot publish sink {sink!r}: {outside} of its staged rows are outside the window {chosen}",
            hint="Backfill again: something else wrote to its staging.",
        )


def require_keys_inside(
    production: DataFrame, keys: DataFrame, chosen: Selection, key: tuple[str, ...], target: str
) -> None:
    """Refuse staged keys that production holds outside the window: both rows would be there afterwards.

    Only files whose key bounds overlap the staged keys are read.
    """
    from pyspark.sql import functions as F

    columns = [F.col(f"`{name}`") for name in key]
    bounds = keys.agg(F.struct(*map(F.min, columns)), F.struct(*map(F.max, columns))).first()
    near = production
    for at, column in enumerate(columns):
        if bounds is None or bounds[0][at] is None:
            return
        near = near.where(column.between(bounds[0][at], bounds[1][at]))
    some = [
        row
        for others in chosen.others(near)
        for row in others.select(*columns).join(keys, list(key), "left_semi").take(4)
    ]
    if some:
        shown = "; ".join(", ".join(f"{name}={row[name]}" for name in key) for row in some[:3])
        raise PublishError(
            f"Cannot publish to {target}: keys of the window are in production outside it too: {shown}"
            + (" and more" if len(some) > 3 else ""),
            hint="Backfill a window that covers these rows as well.",
        )
