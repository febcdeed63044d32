"""Replacing a selection of an Iceberg table's rows in one commit, at a cost that follows the selection.

    replaced = replace_rows(spark, "lake.rmi.plays", InWindow("event_ts", window), rows, edit)

1. The new rows, and the rows of edge files that are not selected, are written as data files through a branch
   of the table, so that Spark gives them the right field ids, partitions and order.
2. One transaction takes the touched files out of the main branch, puts the new ones in, tags the state before
   and drops the branch. Iceberg refuses it if rows that may be selected changed after step 1 began; then all is
   looked at again. Commits elsewhere in the table do not matter.

Killed before the transaction: only the branch is left, and the next call drops it. Killed after: it is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rekappa.errors import HistoryGone, PublishError
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.footprint import Footprint
from rekappa.iceberg.history import changes, current_id, note_of, noted
from rekappa.iceberg.past import rows_at
from rekappa.iceberg.private import changed_files, listed
from rekappa.iceberg.selection import Selection
from rekappa.iceberg.tasks import read_tasks
from rekappa.spark.hashing import digest
from rekappa.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Edit:
    """Who replaces the rows, and what must not have happened meanwhile.

    `since` is the snapshot after which a change of the selected rows by anybody else stops the edit (None: any
    change at all); `checked` False leaves that check out, but never the one during the edit itself.
    """

    run: str
    stamp: Mapping[str, str]
    since: int | None = None
    checked: bool = True
    tag: str | None = None
    branch: str = field(default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "branch", self.branch or f"rekappa_publish_{self.run}")


@dataclass(frozen=True, slots=True)
class Replaced:
    """What one commit did. `before` is the snapshot that the tag marks, None if the table was empty."""

    snapshot: int
    before: int | None
    dropped: int
    rewritten: int
    added: int
    rewritten_rows: int


def replace_rows(spark: SparkSession, name: str, chosen: Selection, rows: DataFrame, edit: Edit) -> Replaced:
    """Make `rows`, all of which are of the selection, its only rows. One atomic commit, or none."""
    for _ in range(ATTEMPTS):
        spark.catalog.refreshTable(name)
        table = load_table(spark, name)
        drop_branch(table, edit.branch)
        base = current_id(table)
        if edit.checked:
            refuse_changes(spark, table, name, chosen, edit)
        prints = chosen.footprint(spark, table, name, base)
        try:
            added = _write_branch(spark, table, name, chosen, rows, prints, edit.branch)
            replaced = _commit(spark, table, chosen, prints, added, edit)
            spark.catalog.refreshTable(name)  # Spark's catalog keeps tables for a while and saw nothing of this.
            return replaced
        except Exception as error:
            drop_branch(load_table(spark, name), edit.branch)
            if not _lost_race(error):
                raise
    raise PublishError(
        f"Cannot replace {chosen} in {name}: its files changed under each of {ATTEMPTS} attempts",
        hint="Another writer keeps rewriting these files. Stop it, or wait until it is done, and try again.",
    )


def refuse_changes(spark: SparkSession, table: Any, name: str, chosen: Selection, edit: Edit) -> None:
    """Stop, naming who and when, if the selected rows are not those of snapshot `edit.since` any more."""
    try:
        found = changes(spark, table, chosen.expression(spark, table), edit.since, edit.run)
    except HistoryGone:
        # Snapshots in between may have expired: the one to compare with is kept for as long as it is needed.
        if edit.since is None or table.snapshot(edit.since) is None or not _unchanged(spark, table, name, chosen, edit):
            raise
        return
    if not found or _unchanged(spark, table, name, chosen, edit):
        return
    shown = "; ".join(str(change) for change in found[:5]) + (f"; and {len(found) - 5} more" if len(found) > 5 else "")
    raise PublishError(
        f"Cannot replace {chosen} in {name}: it was changed meanwhile by {shown}",
        hint="Backfill the window again to take the change in, or give --force to replace it all the same.",
    )


def drop_branch(table: Any, branch: str) -> None:
    """Remove what a killed edit left behind; its files go when snapshots expire."""
    if table.refs().containsKey(branch):
        table.manageSnapshots().removeBranch(branch).commit()


def _write_branch(
    spark: SparkSession, table: Any, name: str, chosen: Selection, rows: DataFrame, prints: Footprint, branch: str
) -> list[Any]:
    """Write the new rows and what must survive of the edge files; answer the new data files."""
    if prints.snapshot is None:
        table.manageSnapshots().createBranch(branch).commit()
    else:
        table.manageSnapshots().createBranch(branch, prints.snapshot).commit()
    target = f"{name}.branch_{branch}"
    columns = [quoted(column) for column in spark.table(name).columns]
    rows.select(*columns).writeTo(target).append()
    if prints.edge:
        with read_tasks(spark, table, prints.edge) as edge:
            for part in chosen.others(edge.select(*columns)):
                if not part.isEmpty():
                    part.writeTo(target).append()
    table.refresh()
    snapshot = table.snapshot(branch)
    added: list[Any] = []
    while snapshot is not None and snapshot.snapshotId() != prints.snapshot:
        added += listed(spark, changed_files(spark, table, snapshot).addedDataFiles())
        parent = snapshot.parentId()
        snapshot = table.snapshot(parent) if parent is not None else None
    return added


def _commit(
    spark: SparkSession, table: Any, chosen: Selection, prints: Footprint, added: list[Any], edit: Edit
) -> Replaced:
    transaction = table.newTransaction()
    overwrite = transaction.newOverwrite().conflictDetectionFilter(chosen.expression(spark, table))
    overwrite = overwrite.validateNoConflictingData().validateNoConflictingDeletes()
    if prints.snapshot is not None:
        overwrite = overwrite.validateFromSnapshot(prints.snapshot)
    for file in prints.files:
        overwrite.deleteFile(file)
    for file in added:
        overwrite.addFile(file)
    for key, value in edit.stamp.items():
        overwrite.set(key, value)
    overwrite.commit()
    made = int(transaction.table().currentSnapshot().snapshotId())
    for state, run in edit.stamp.items():
        transaction.updateProperties().set(noted(run), note_of(state, made, prints.snapshot)).commit()
    refs = transaction.manageSnapshots().removeBranch(edit.branch)
    if edit.tag is not None and prints.snapshot is not None:
        known = table.refs().containsKey(edit.tag)
        refs = (refs.replaceTag if known else refs.createTag)(edit.tag, prints.snapshot)
    refs.commit()
    transaction.commitTransaction()
    table.refresh()
    return Replaced(
        snapshot=int(table.currentSnapshot().snapshotId()),
        before=prints.snapshot,
        dropped=len(prints.whole),
        rewritten=len(prints.edge),
        added=len(added),
        rewritten_rows=sum(int(task.file().recordCount()) for task in prints.edge),
    )


def _unchanged(spark: SparkSession, table: Any, name: str, chosen: Selection, edit: Edit) -> bool:
    """Whether the selection holds the same rows as in snapshot `edit.since`, however its files were rewritten."""
    new = current_id(table)
    if edit.since is None or new is None:
        return False
    before, after = (chosen.of(rows_at(spark, name, snapshot)) for snapshot in (edit.since, new))
    return before.columns == after.columns and digest(before) == digest(after)


def _lost_race(error: Exception) -> bool:
    """Whether Iceberg refused the commit because somebody else's came first: then look again."""
    text = str(error)
    return "ValidationException" in text or "CommitFailedException" in text
