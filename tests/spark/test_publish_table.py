"""Replacing rows of an Iceberg table, by window or by key: one commit, only these rows, and back."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow.parquet import ParquetFile

from rekappa.errors import PublishError
from rekappa.home import Home
from rekappa.iceberg import replace as engine
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.history import current_id, publication, tag_before
from rekappa.iceberg.retention import AGE
from rekappa.iceberg.selection import InWindow, OfKeys
from rekappa.iceberg.upkeep import expire
from rekappa.publish.make import plan_of
from rekappa.publish.plan import PublishState, SinkPlan
from rekappa.publish.publishers.contract import Part
from rekappa.publish.publishers.table import TablePublisher
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAY = datetime(2026, 11, 1, tzinfo=UTC)
ROWS = InWindow("at", Window(DAY + timedelta(minutes=30), DAY + timedelta(minutes=150)))
_names = itertools.count()
Make = Callable[..., str]


@pytest.fixture
def make(spark: SparkSession) -> Make:
    def make(partitioned: bool = False, hours: int = 4, properties: str = "'format-version' = '2'") -> str:
        name = f"lake.publish.t{next(_names)}"
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.publish")
        by = "PARTITIONED BY (hours(at))" if partitioned else ""
        spark.sql(
            f"CREATE TABLE {name} (id BIGINT, v STRING, at TIMESTAMP) USING iceberg {by} TBLPROPERTIES ({properties})"
        )
        for hour in range(hours):
            append(spark, name, hour * 60, 60)
        return name

    return make


def minutes(spark: SparkSession, first: int, count: int, v: str = "old") -> DataFrame:
    at = f"timestampadd(MINUTE, CAST(id AS INT), TIMESTAMP '{DAY:%Y-%m-%d %H:%M:%S}Z')"
    return spark.range(first, first + count, 1, 1).selectExpr("id", f"'{v}' AS v", f"{at} AS at")


def append(spark: SparkSession, name: str, first: int, count: int, v: str = "old") -> None:
    minutes(spark, first, count, v).writeTo(name).option("snapshot-property.rekappa.writer", "live_1/out").append()


def content(spark: SparkSession, name: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in spark.table(name).orderBy("id").collect():
        found.setdefault(row.v, []).append(row.id)
    return found


def before_nothing(run: str) -> Any:
    raise AssertionError("a table keeps its own history")


def putting(
    name: str, rows: DataFrame, run: str = "r", *, by_key: bool = False, unique: bool = True, **chosen: Any
) -> TablePublisher:
    """A run that would be published into the table; it was created now."""
    spark = rows.sparkSession
    baseline = current_id(load_table(spark, name))
    part = Part(spark, "out", run, ROWS.window, (), rows, rows.select("id"), None, baseline, True, before_nothing)
    selection = OfKeys(("id",), rows) if by_key else InWindow(**{"column": "at", "window": ROWS.window, **chosen})
    return TablePublisher(part, name, selection, ("id",), unique, nowhere_else=not by_key and not chosen)


def publish(it: TablePublisher, *, force: bool = False) -> SinkPlan:
    plan = plan_of(it, PublishState.NEVER, force)
    it.publish(plan, lambda: None)
    return plan


def undo(it: TablePublisher, *, force: bool = False) -> None:
    it.undo(lambda: None, force=force)


def state(it: TablePublisher) -> PublishState:
    return it.state(PublishState.NEVER)


@pytest.mark.parametrize("partitioned", [False, True])
def test_publish_undo_publish(spark: SparkSession, make: Make, partitioned: bool) -> None:
    name = make(partitioned)
    before = content(spark, name)
    it = putting(name, minutes(spark, 30, 110, "new"))
    plan = plan_of(it, PublishState.NEVER)
    seen = plan.effect
    assert (seen.added, seen.changed, seen.removed, seen.unchanged) == (0, 110, 10, 0)
    assert (seen.files_dropped, seen.files_rewritten, len(seen.partitions)) == (1, 2, 3 if partitioned else 0)
    assert (content(spark, name), state(it)) == (before, PublishState.NEVER)
    it.publish(plan, lambda: None)
    after = {"old": [*range(30), *range(150, 240)], "new": [*range(30, 140)]}
    assert (content(spark, name), state(it)) == (after, PublishState.PUBLISHED)
    there = current_id(load_table(spark, name))
    assert publish(it).done
    it.publish(plan, lambda: None)
    assert current_id(load_table(spark, name)) == there, "publishing twice changes nothing"
    append(spark, name, 240, 60, "later")
    undo(it)
    assert content(spark, name) == {"old": before["old"], "later": [*range(240, 300)]}
    there = current_id(load_table(spark, name))
    undo(it)
    assert (current_id(load_table(spark, name)), state(it)) == (there, PublishState.UNDONE), "nor does undoing twice"
    publish(it)
    assert content(spark, name) == {**after, "later": [*range(240, 300)]}
    assert set(load_table(spark, name).refs()) == {"main", tag_before("r")}
    spark.sql(f"CALL lake.system.expire_snapshots(table => '{name[5:]}', older_than => TIMESTAMP '2100-01-01')")
    spark.catalog.refreshTable(name)
    assert content(spark, name) == {**after, "later": [*range(240, 300)]}


def test_deleted_rows_do_not_come_back(spark: SparkSession, make: Make) -> None:
    name = make(properties="'format-version' = '2', 'write.delete.mode' = 'merge-on-read'")
    spark.sql(f"DELETE FROM {name} WHERE id IN (10, 40, 200, 160)")
    assert load_table(spark, name).currentSnapshot().summary().get("added-position-deletes") == "4"
    before = content(spark, name)
    it = putting(name, minutes(spark, 50, 2, "new"))
    publish(it)
    kept = [id for id in before["old"] if not 30 <= id < 150]
    assert content(spark, name) == {"old": kept, "new": [50, 51]}
    undo(it)
    assert content(spark, name) == before


def test_row_groups_outside_the_window_survive(spark: SparkSession, make: Make) -> None:
    """One file with many row groups, most of them wholly outside: Iceberg would not read these for the window."""
    small = "'write.parquet.row-group-size-bytes' = '512', 'write.parquet.row-group-check-min-record-count' = '8'"
    name = make(hours=0, properties=f"'format-version' = '2', {small}")
    append(spark, name, 0, 2000)
    (file,) = spark.table(f"{name}.files").collect()
    assert ParquetFile(file.file_path.removeprefix("file:")).num_row_groups > 3
    publish(putting(name, minutes(spark, 30, 120, "new")))
    assert content(spark, name) == {"old": [*range(30), *range(150, 2000)], "new": [*range(30, 150)]}


def test_a_changed_window_is_refused_with_who_and_when(spark: SparkSession, make: Make) -> None:
    name = make()
    staged = minutes(spark, 30, 120, "new")
    it, other = putting(name, staged, unique=False), putting(name, staged, "other")
    append(spark, name, 240, 10)
    publish(other)
    append(spark, name, 100, 1, "late")
    seen = content(spark, name)
    with pytest.raises(PublishError, match=r"changed meanwhile by .*live_1/out at 20.* \(append"):
        publish(it)
    with pytest.raises(PublishError, match="live_1/out"):
        undo(other)
    assert content(spark, name) == seen
    publish(it, force=True)
    assert "late" not in content(spark, name)


def test_the_check_starts_from_the_snapshot_not_from_a_clock(spark: SparkSession, make: Make) -> None:
    """However fast commits follow each other; and a history that does not reach back so far is said."""
    name = make(hours=1)
    staged = minutes(spark, 30, 30, "new")
    it = putting(name, staged)
    spark.sql(f"UPDATE {name} SET v = 'theirs' WHERE id = 40")
    with pytest.raises(PublishError, match="changed meanwhile"):
        plan_of(it, PublishState.NEVER)
    late = putting(name, staged)
    append(spark, name, 500, 1)
    spark.sql(f"CALL lake.system.expire_snapshots(table => '{name[5:]}', older_than => TIMESTAMP '2100-01-01')")
    with pytest.raises(PublishError, match="history no longer reaches back") as caught:
        plan_of(late, PublishState.NEVER)
    assert "--force" in str(caught.value.hint)
    publish(late, force=True)
    assert content(spark, name) == {"old": [*range(30), 500], "new": [*range(30, 60)]}


def test_a_plan_that_was_overtaken_is_refused(spark: SparkSession, make: Make) -> None:
    """Force goes over what changed before the plan was made, never over what changed after it."""
    name = make(hours=3)
    it = putting(name, minutes(spark, 30, 120, "new"))
    plan = plan_of(it, PublishState.NEVER, force=True)
    append(spark, name, 500, 1, "elsewhere")
    spark.sql(f"UPDATE {name} SET v = 'theirs' WHERE id = 40")
    seen = content(spark, name)
    with pytest.raises(PublishError, match="changed meanwhile"):
        it.publish(plan, lambda: None)
    assert content(spark, name) == seen


def test_a_rewrite_that_left_the_window_alone_is_no_change(spark: SparkSession, make: Make) -> None:
    name = make()
    it = putting(name, minutes(spark, 30, 120, "new"))
    spark.sql(f"UPDATE {name} SET v = 'other' WHERE id = 10")  # rewrites a file at the window's edge
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name[5:]}', options => map('rewrite-all', 'true'))")
    publish(it)
    assert content(spark, name) == {
        "old": [id for id in range(240) if id != 10 and not 30 <= id < 150], "other": [10], "new": [*range(30, 150)]
    }  # fmt: skip


def test_commits_during_the_edit(spark: SparkSession, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between writing the files and the commit: elsewhere passes, in the window stops it."""
    name = make()
    it = putting(name, minutes(spark, 30, 120, "new"))
    write = engine._write_branch
    meanwhile = [(300, "elsewhere")]

    def interrupted(*args: Any) -> Any:
        files = write(*args)
        for first, v in meanwhile:
            append(spark, name, first, 1, v)
        return files

    monkeypatch.setattr(engine, "_write_branch", interrupted)
    publish(it)
    assert content(spark, name)["elsewhere"] == [300]
    undo(it)
    meanwhile[:] = [(100, "inside")]
    seen = content(spark, name)
    with pytest.raises(PublishError, match="changed meanwhile by live_1/out"):
        publish(it)
    assert content(spark, name) == {"old": seen["old"], "elsewhere": [300, 300], "inside": [100]}
    assert set(load_table(spark, name).refs()) == {"main", tag_before("r")}, "no branch is left"


def test_an_empty_table_and_rows_without_time(spark: SparkSession, make: Make) -> None:
    name = make(hours=0)
    it = putting(name, minutes(spark, 30, 2, "new"))
    publish(it)
    undo(it)
    assert content(spark, name) == {}
    name = make(hours=1)
    spark.sql(f"INSERT INTO {name} VALUES (999, 'timeless', NULL)")
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name[5:]}', options => map('rewrite-all', 'true'))")
    publish(putting(name, minutes(spark, 30, 1, "new")))
    assert content(spark, name) == {"old": [*range(30)], "new": [30], "timeless": [999]}


def test_keys_outside_the_window_are_refused(spark: SparkSession, make: Make) -> None:
    name = make()
    plan_of(putting(name, minutes(spark, 30, 120)), PublishState.NEVER)
    moved = minutes(spark, 30, 1).selectExpr("id + 170 AS id", "v", "at")
    with pytest.raises(PublishError, match="outside it too: id=200"):
        plan_of(putting(name, moved), PublishState.NEVER)


def test_by_key_where_there_is_no_event_time(spark: SparkSession, make: Make) -> None:
    name = make(hours=1)
    before = content(spark, name)
    it = putting(name, minutes(spark, 50, 20, "new"), by_key=True)
    seen = plan_of(it, PublishState.NEVER).effect
    assert (seen.added, seen.changed, seen.removed, seen.files_rewritten) == (10, 10, 0, 1)
    append(spark, name, 200, 5)
    publish(it)
    after = {"old": [*range(50), *range(200, 205)], "new": [*range(50, 70)]}
    assert content(spark, name) == after
    assert publish(it).done
    undo(it)
    assert content(spark, name) == {"old": [*before["old"], *range(200, 205)]}
    undo(it)
    publish(it)
    assert content(spark, name) == after
    spark.sql(f"UPDATE {name} SET v = 'theirs' WHERE id = 55")
    with pytest.raises(PublishError, match=r"the staged keys in .* changed meanwhile by"):
        undo(it)


def test_snapshots_in_between_may_expire(spark: SparkSession, make: Make) -> None:
    """Publish and undo need those that they compare with, no other."""
    name = make(properties=f"'format-version' = '2', '{AGE}' = '1'")
    before = content(spark, name)
    it, late = putting(name, minutes(spark, 30, 120, "new")), putting(name, minutes(spark, 30, 120, "late"), run="late")
    assert it.part.baseline is not None
    pins = {it.part.baseline}
    append(spark, name, 300, 10)
    append(spark, name, 310, 10)
    expire(spark, name, pins, datetime.now(UTC) + timedelta(days=1))
    publish(it)
    append(spark, name, 320, 10)
    append(spark, name, 330, 10)
    expire(spark, name, pins, datetime.now(UTC) + timedelta(days=1))
    with pytest.raises(PublishError, match="Cannot tell who changed"):
        publish(late)
    assert state(it) is PublishState.PUBLISHED
    undo(it)
    assert content(spark, name) == {"old": [*before["old"], *range(300, 340)]}


@pytest.mark.parametrize("theirs", [55, 10, 65])
def test_by_key_nobody_elses_row_is_lost(
    spark: SparkSession, make: Make, monkeypatch: pytest.MonkeyPatch, theirs: int
) -> None:
    """Somebody upserts a row while ours are written, just before they are committed: one of the staged keys (55; 65
    is not in production yet) stops the publication, another key (10, in a file that is rewritten) survives it."""
    name = make(hours=1)
    it = putting(name, minutes(spark, 50, 20, "new"), by_key=True)
    write = engine._write_branch
    done: list[int] = []

    def interrupted(*args: Any) -> Any:
        files = write(*args)
        if not done:
            done.append(theirs)
            minutes(spark, theirs, 1, "theirs").createOrReplaceTempView("theirs")
            spark.sql(
                f"MERGE INTO {name} t USING theirs s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * "
                "WHEN NOT MATCHED THEN INSERT *"
            )
        return files

    monkeypatch.setattr(engine, "_write_branch", interrupted)
    if theirs >= 50:
        with pytest.raises(PublishError, match=r"the staged keys in .* changed meanwhile by"):
            publish(it)
        assert state(it) is PublishState.NEVER
        assert content(spark, name) == {"old": [id for id in range(60) if id != theirs], "theirs": [theirs]}
    else:
        publish(it)
        assert content(spark, name) == {
            "old": [id for id in range(50) if id != theirs], "theirs": [theirs], "new": [*range(50, 70)]
        }  # fmt: skip


def test_only_the_chosen_regions(spark: SparkSession) -> None:
    name = f"lake.publish.t{next(_names)}"
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.publish")
    at = f"timestampadd(MINUTE, CAST(id AS INT), TIMESTAMP '{DAY:%Y-%m-%d %H:%M:%S}Z') AS at"
    both = spark.range(0, 240, 1, 1).selectExpr("id", "'old' AS v", at, "IF(id % 2 = 0, 'eu', 'us') AS region")
    both.writeTo(name).using("iceberg").create()
    staged = both.where("id = 40").selectExpr("id", "'new' AS v", "at", "region")
    it = putting(name, staged, region_column="region", regions=("eu",))
    publish(it)
    kept = [id for id in range(240) if id % 2 or not 30 <= id < 150]
    assert content(spark, name) == {"old": kept, "new": [40]}
    undo(it)
    assert content(spark, name) == {"old": [*range(240)]}


_KILLED = """
import os, signal, sys
from pathlib import Path
from rekappa.config.model import AppConfig
from rekappa.home import Home
from rekappa.iceberg import replace as engine
from rekappa.spark.session import open_session
from test_publish_table import minutes, publish, putting
root, name, point = sys.argv[1:4]
config = AppConfig.model_validate({"app": "bare", "sinks": {"out": {"type": "null"}}, "sources": {"events": {
    "schema": "id BIGINT", "event_time": "id", "candidates": {"live": {"type": "kafka", "topic": "t"}}}}})
spark = open_session(config, "live", Home(Path(root)))
whole = getattr(engine, point)
def dies(*args):
    whole(*args)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(engine, point, dies)
publish(putting(name, minutes(spark, 30, 120, "new")))
"""


@pytest.mark.parametrize(("point", "happened"), [("_write_branch", False), ("_commit", True)])
def test_killed_in_the_middle(
    spark: SparkSession, make: Make, home: Home, tmp_path: Path, point: str, happened: bool
) -> None:
    name = make()
    before = content(spark, name)
    it = putting(name, minutes(spark, 30, 120, "new"))
    script = tmp_path / "killed.py"
    script.write_text(_KILLED)
    ended = subprocess.run(
        [sys.executable, str(script), str(home.root), name, point],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
    spark.catalog.refreshTable(name)
    assert (state(it) is PublishState.PUBLISHED) is happened
    assert (content(spark, name) == before) is not happened
    assert publish(it).done is happened
    assert content(spark, name) == {"old": [*range(30), *range(150, 240)], "new": [*range(30, 150)]}
    table = load_table(spark, name)
    assert set(table.refs()) == {"main", tag_before("r")}
    found = publication(table, "r")
    assert found is not None
    assert found.snapshot == current_id(table)
