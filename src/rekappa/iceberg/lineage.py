"""What the commits of some batches did to a table, told by their stamps: the rows they added, the keys they changed.

Stamps are exact where time is not: other writers' commits lie between them, and compaction moves rows to other files.
A table that no longer remembers back to the first of these commits can't tell, which is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

from rekappa.errors import RunError
from rekappa.iceberg.history import ancestors
from rekappa.iceberg.past import in_columns_of
from rekappa.iceberg.private import changed_files, listed, planned
from rekappa.iceberg.tasks import read_tasks
from rekappa.spark.multisets import without
from rekappa.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Summary = Callable[[str], str | None]
"""What a commit says of itself under a name."""
IsOwn = Callable[[Summary], bool]
"""Whether a commit is one of those in question."""
REWIND = "rekappa.rewind"
REWIND_UNDONE = "rekappa.rewind-undone"
"""The stamps of commits that take abandoned rows out, and bring them back: each names the run that went on instead."""


@dataclass(frozen=True)
class Lineage:
    """`own` are the commits in question, `later` all since the first of them, both oldest first (Iceberg's snapshots).

    `cut` is the snapshot before the first, None for a table that was empty then.
    """

    own: tuple[Any, ...]
    later: tuple[Any, ...]
    cut: int | None

    @property
    def others(self) -> tuple[Any, ...]:
        """Commits by anybody else since the first, but for those that change no rows."""
        mine = {one.snapshotId() for one in self.own}
        return tuple(one for one in self.later if one.snapshotId() not in mine and one.operation() != "replace")


def lineage(table: Any, is_own: IsOwn, since: datetime) -> Lineage:
    """The commits in question. None of them is older than `since`; refuses a table that has forgotten that time."""
    seen = []
    for snapshot in ancestors(table):
        if datetime.fromtimestamp(snapshot.timestampMillis() / 1000, UTC) < since:
            break
        seen.append(snapshot)
    else:
        if seen and seen[-1].parentId() is not None:
            raise RunError(
                f"Cannot tell what the batches wrote to {table.name()}: its snapshots of that time have expired",
                hint="Keep snapshots for as long as you want to go back. A backfill makes a window anew instead.",
            )
    seen.reverse()
    own = [one for one in seen if is_own(one.summary().get)]
    if not own:
        return Lineage((), (), None)
    parent = own[0].parentId()
    later = seen[[one.snapshotId() for one in seen].index(own[0].snapshotId()) :]
    return Lineage(tuple(own), tuple(later), None if parent is None else int(parent))


@dataclass(frozen=True)
class AddedRows:
    """Rows that commits added, where they are now. `whole` are files of their own, still as they were written; `mixed`
    files into which others were rewritten; `rows` what of them is in the mixed ones, None if there are none."""

    whole: frozenset[str]
    mixed: frozenset[str]
    rows: DataFrame | None
    count: int


def added_rows(spark: SparkSession, table: Any, name: str, found: Lineage) -> AddedRows:
    """Where the rows are that the commits added. For commits that only append."""
    mine = {one.snapshotId() for one in found.own}
    own: dict[str, Any] = {}
    descended: set[str] = set()
    lost: dict[int, set[str]] = {}
    for snapshot in found.later:
        changes = changed_files(spark, table, snapshot)
        added = {str(file.location()): file for file in listed(spark, changes.addedDataFiles())}
        if snapshot.snapshotId() in mine:
            own |= added
            continue
        removed = {str(file.location()) for file in listed(spark, changes.removedDataFiles())}
        if removed & (own.keys() | descended) or snapshot.summary().get(REWIND_UNDONE):
            descended |= added.keys()
            lost[int(snapshot.parentId())] = removed & own.keys()
    live = {str(task.file().location()) for task in planned(spark, table.newScan())}
    gone = [rows_of_files(spark, table, name, at, files) for at, files in lost.items() if files]
    rows = reduce(lambda one, other: one.unionByName(other), gone) if gone else None
    whole = frozenset(own.keys() & live)
    count = sum(int(own[file].recordCount()) for file in whole) + (rows.count() if rows is not None else 0)
    return AddedRows(whole, frozenset(descended & live), rows, count)


def rows_of_files(spark: SparkSession, table: Any, name: str, snapshot: int, files: Iterable[str]) -> DataFrame:
    """The rows that these data files held at a snapshot, row-level deletes applied, in the table's columns of now."""
    wanted = set(files)
    scan = table.newScan().useSnapshot(snapshot).ignoreResiduals()
    tasks = [task for task in planned(spark, scan) if str(task.file().location()) in wanted]
    known = spark.table(name)
    if not tasks:
        return known.limit(0)
    with read_tasks(spark, table, tasks) as rows:
        # Read now: the tasks are only known inside.
        return in_columns_of(rows, known).localCheckpoint()


def changed_keys(spark: SparkSession, table: Any, name: str, key: tuple[str, ...], pairs: Iterable[Any]) -> DataFrame:
    """The keys whose rows differ across commits, each once. `pairs` are snapshots: what each changed of its parent."""
    known = spark.table(name).select(*map(quoted, key)).limit(0)
    parts = [known]
    for snapshot in pairs:
        changes = changed_files(spark, table, snapshot)
        added = {str(file.location()) for file in listed(spark, changes.addedDataFiles())}
        removed = {str(file.location()) for file in listed(spark, changes.removedDataFiles())}
        if listed(spark, changes.addedDeleteFiles()):
            raise RunError(
                f"Cannot tell which keys of {name} were changed: it is written with row-level deletes",
                hint="Set its write.merge.mode to copy-on-write.",
            )
        parts.append(_differing(spark, table, name, key, snapshot.parentId(), removed, snapshot.snapshotId(), added))
    return reduce(lambda one, other: one.union(other), parts).distinct().localCheckpoint()


def keys_changed_between(
    spark: SparkSession, table: Any, name: str, key: tuple[str, ...], old: int | None
) -> DataFrame:
    """The keys whose rows now differ from those at a snapshot. Files that both have are not read."""
    now = {str(task.file().location()): bool(task.deletes().size()) for task in planned(spark, table.newScan())}
    scan = None if old is None else table.newScan().useSnapshot(old)
    then = {} if scan is None else {
        str(task.file().location()): bool(task.deletes().size()) for task in planned(spark, scan)
    }  # fmt: skip
    same = {file for file, deleted in now.items() if then.get(file) is False and not deleted}
    current = int(table.currentSnapshot().snapshotId())
    found = _differing(spark, table, name, key, old, then.keys() - same, current, now.keys() - same)
    return found.distinct().localCheckpoint()


def _differing(
    spark: SparkSession,
    table: Any,
    name: str,
    key: tuple[str, ...],
    old: int | None,
    old_files: Iterable[str],
    new: int,
    new_files: Iterable[str],
) -> DataFrame:
    before = spark.table(name).limit(0) if old is None else rows_of_files(spark, table, name, old, old_files)
    after = rows_of_files(spark, table, name, new, new_files)
    columns = [quoted(column) for column in key]
    return without(before, after).select(*columns).union(without(after, before).select(*columns))
