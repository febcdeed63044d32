"""Iceberg tables: one atomic commit for each, with a tag on the state before.

Appended rows are told by the files of the commits that added them; a compaction moves rows, and then as many equal
rows are taken out as were added. Upserted keys get back the rows that they had before the first abandoned commit.
What others wrote meanwhile stays; where they changed the same keys, nobody can tell what is right, which is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rekappa.errors import RunError
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.history import tag_before
from rekappa.iceberg.lineage import (
    REWIND,
    REWIND_UNDONE,
    Lineage,
    Summary,
    added_rows,
    changed_keys,
    keys_changed_between,
    lineage,
)
from rekappa.iceberg.past import in_columns_of, rows_at
from rekappa.iceberg.replace import Edit, replace_rows
from rekappa.iceberg.selection import OfKeys, Selection
from rekappa.iceberg.withdrawal import (
    Withdrawal,
    commit_of,
    is_done,
    require_all_there,
    tag_after,
    taken_out,
)
from rekappa.recovery.plan import SinkReset
from rekappa.recovery.resets.contract import Abandoned
from rekappa.runs.current import UNDOABLE
from rekappa.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class _TableReset(ABC):
    """What both ways of writing a table share."""

    gone: Abandoned
    table: str

    @property
    def _there(self) -> bool:
        return bool(self.gone.spark.catalog.tableExists(self.table))

    def _java(self) -> Any:
        self.gone.spark.catalog.refreshTable(self.table)
        return load_table(self.gone.spark, self.table)

    def _found(self, table: Any) -> Lineage:
        return lineage(table, self.gone.is_own, self.gone.since)

    def carry_out(self) -> None:
        if not self._there:
            return
        table = self._java()
        if not is_done(table, REWIND, self.gone.operation):
            found = self._found(table)
            if found.own:
                self._take_back(table, found)
        self._mark()

    def look_back(self) -> None:
        if self._there and not is_done(table := self._java(), REWIND_UNDONE, self.gone.operation):
            self._back(table)

    def undo(self) -> None:
        if self._there and not is_done(table := self._java(), REWIND_UNDONE, self.gone.operation):
            selection, rows = self._back(table)
            replace_rows(self.gone.spark, self.table, selection, rows, self._edit(REWIND_UNDONE))

    @abstractmethod
    def _back(self, table: Any) -> tuple[Selection, DataFrame]:
        """What goes when the rewind is undone, and what comes in its place; refuses what can't be told."""

    @abstractmethod
    def _take_back(self, table: Any, found: Lineage) -> None:
        """One commit that undoes what these commits did."""

    def _edit(self, stamp: str) -> Edit:
        operation = self.gone.operation
        tag = tag_before(operation) if stamp == REWIND else None
        return Edit(operation, {stamp: operation}, checked=False, tag=tag)

    def _mark(self) -> None:
        """Tag what the rewind left, so that it can be undone although its snapshot would go earlier by itself."""
        table, tag = self._java(), tag_after(self.gone.operation)
        made = commit_of(table, REWIND, self.gone.operation)
        if made is None or table.refs().containsKey(tag):
            return
        refs = table.manageSnapshots().createTag(tag, made)
        for one in (tag, tag_before(self.gone.operation)):
            refs = refs.setMaxRefAgeMs(one, UNDOABLE // timedelta(milliseconds=1))
        refs.commit()

    def _before(self) -> DataFrame:
        spark = self.gone.spark
        return in_columns_of(rows_at(spark, self.table, tag_before(self.gone.operation)), spark.table(self.table))


@dataclass(frozen=True)
class AppendReset(_TableReset):
    def look(self) -> SinkReset:
        gone = self.gone
        nothing = SinkReset(gone.sink, self.table, told="nothing was written since")
        if not self._there:
            return nothing
        table = self._java()
        found = self._found(table)
        if not found.own:
            return nothing
        rows = added_rows(gone.spark, table, self.table, found)
        require_all_there(gone.spark, table, self.table, rows)
        files = f"{len(rows.whole)} files go" + (f", {len(rows.mixed)} are rewritten" if rows.mixed else "")
        return SinkReset(
            gone.sink, self.table, removed=rows.count, told=f"the rows of {len(found.own)} commits; {files}"
        )

    def _take_back(self, table: Any, found: Lineage) -> None:
        rows = added_rows(self.gone.spark, table, self.table, found)
        require_all_there(self.gone.spark, table, self.table, rows)
        if rows.count:
            empty = self.gone.spark.table(self.table).limit(0)
            replace_rows(self.gone.spark, self.table, Withdrawal(rows), empty, self._edit(REWIND))

    def _back(self, table: Any) -> tuple[Selection, DataFrame]:
        spark, did = self.gone.spark, commit_of(table, REWIND, self.gone.operation)
        back = spark.table(self.table).limit(0) if did is None else taken_out(spark, table, self.table, did)[0]
        made = added_rows(spark, table, self.table, lineage(table, self.gone.is_new, self.gone.since))
        require_all_there(spark, table, self.table, made)
        return Withdrawal(made), back


@dataclass(frozen=True)
class UpsertReset(_TableReset):
    key: tuple[str, ...] = ()

    def look(self) -> SinkReset:
        gone = self.gone
        if not self._there:
            return SinkReset(gone.sink, self.table, told="nothing was written since")
        table = self._java()
        found = self._found(table)
        if not found.own:
            return SinkReset(gone.sink, self.table, told="nothing was written since")
        keys = self._keys(table, found)
        held, back = (
            OfKeys(self.key, keys).of(rows).count() for rows in (gone.spark.table(self.table), self._at(found))
        )
        told = f"{keys.count()} keys as they were before the first of {len(found.own)} commits"
        return SinkReset(gone.sink, self.table, removed=held, restored=back, told=told)

    def _take_back(self, table: Any, found: Lineage) -> None:
        selection, rows = self._of_keys(self._keys(table, found), self._at(found))
        replace_rows(self.gone.spark, self.table, selection, rows, self._edit(REWIND))

    def _back(self, table: Any) -> tuple[Selection, DataFrame]:
        did = commit_of(table, REWIND, self.gone.operation)
        spark, columns = self.gone.spark, [quoted(name) for name in self.key]
        made = self._made(table)
        none = spark.table(self.table).select(*columns).limit(0)
        touched = self._keys(table, made) if made.own else none
        if did is None:
            return self._of_keys(touched, self._at(made))
        away, put = taken_out(spark, table, self.table, did)
        keys = touched.union(away.select(*columns)).union(put.select(*columns)).distinct().localCheckpoint()
        return self._of_keys(keys, self._before())

    def _of_keys(self, keys: DataFrame, then: DataFrame) -> tuple[Selection, DataFrame]:
        """The rows of these keys, and what they were."""
        chosen = OfKeys(self.key, keys)
        return chosen, chosen.of(then).localCheckpoint()

    def _made(self, table: Any) -> Lineage:
        """What the run that goes on has written, and what runs wrote and rewinds did that came after it and were undone
        themselves. Nothing of it is older than the rewind."""

        def is_ours(said: Summary) -> bool:
            return self.gone.is_new(said) or self.gone.is_of_the_newer(said)

        return lineage(table, is_ours, self.gone.since)

    def _found(self, table: Any) -> Lineage:
        """What is put back is the state at the cut: also over what runs wrote that were rewound themselves."""

        def is_ours(said: Summary) -> bool:
            return self.gone.is_later(said) or self.gone.is_of_the_dead(said)

        return lineage(table, is_ours, self.gone.since)

    def _at(self, found: Lineage) -> DataFrame:
        """The table before the first of these commits."""
        spark = self.gone.spark
        return in_columns_of(rows_at(spark, self.table, found.cut), spark.table(self.table))

    def _keys(self, table: Any, found: Lineage) -> DataFrame:
        """The keys that these commits left otherwise than they were; refuses one that others changed too."""
        spark, others = self.gone.spark, found.others
        changed = keys_changed_between(spark, table, self.table, self.key, found.cut)
        if not others:
            return changed
        theirs = changed_keys(spark, table, self.table, self.key, others)
        # Commit by commit, which reads more: only where somebody else wrote between them.
        ours = changed_keys(spark, table, self.table, self.key, found.own)
        both = ours.join(theirs, list(self.key), "left_semi").take(3)
        if both:
            shown = "; ".join(", ".join(f"{name}={row[name]}" for name in self.key) for row in both)
            raise RunError(
                f"Cannot put the keys of {self.table} back: others changed some of them meanwhile: {shown}",
                hint="Nobody can tell which value is right. Backfill the window instead.",
            )
        return changed.join(ours, list(self.key), "left_semi").localCheckpoint()
