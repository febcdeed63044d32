"""Replacing a window of an Iceberg table: one commit, only the window, and back."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rekappa.errors import PublishError
from rekappa.home import Home
from rekappa.iceberg import window as engine
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.history import current_id, publication
from rekappa.iceberg.span import Span
from rekappa.publish.keyed import check_keys_unchanged, effect_of_keys, publish_keys, undo_keys
from rekappa.publish.table import check_keys, effect, publish_table, published, tag_before, undo_table
from rekappa.timeline import Window
from rekappa.validate.result import Rules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAY = datetime(2026, 11, 1, tzinfo=UTC)
SPAN = Span("at", Window(DAY + timedelta(minutes=30), DAY + timedelta(minutes=150)))
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


def now() -> datetime:
    return datetime.now(UTC)


@pytest.mark.parametrize("partitioned", [False, True])
def test_publish_undo_publish(spark: SparkSession, make: Make, partitioned: bool) -> None:
    name, began = make(partitioned), now()
    before = content(spark, name)
    staged = minutes(spark, 30, 110, "new")
    seen = effect(spark, name, SPAN, staged, Rules(key=("id",), unique=True))
    assert (seen.added, seen.changed, seen.removed, seen.unchanged) == (0, 110, 10, 0)
    assert (seen.files_dropped, seen.files_rewritten, len(seen.partitions)) == (1, 2, 3 if partitioned else 0)
    assert content(spark, name) == before
    done = publish_table(spark, name, SPAN, staged, "r", began)
    assert done is not None
    assert (done.dropped, done.rewritten, done.rewritten_rows) == (1, 2, 120)
    after = {"old": [*range(30), *range(150, 240)], "new": [*range(30, 140)]}
    assert content(spark, name) == after
    assert publish_table(spark, name, SPAN, staged, "r", began) is None, "publishing twice changes nothing"
    append(spark, name, 240, 60, "later")
    assert undo_table(spark, name, SPAN, "r") is not None
    assert content(spark, name) == {"old": before["old"], "later": [*range(240, 300)]}
    assert undo_table(spark, name, SPAN, "r") is None, "undoing twice changes nothing"
    assert publish_table(spark, name, SPAN, staged, "r", began) is not None
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
    assert publish_table(spark, name, SPAN, minutes(spark, 50, 2, "new"), "r", now()) is not None
    kept = [id for id in before["old"] if not 30 <= id < 150]
    assert content(spark, name) == {"old": kept, "new": [50, 51]}
    undo_table(spark, name, SPAN, "r")
    assert content(spark, name) == before


def test_a_changed_window_is_refused_with_who_and_when(spark: SparkSession, make: Make) -> None:
    name, began = make(), now()
    staged = minutes(spark, 30, 120, "new")
    append(spark, name, 240, 10)
    assert publish_table(spark, name, SPAN, staged, "other", began) is not None, "appends elsewhere do not matter"
    append(spark, name, 100, 1, "late")
    seen = content(spark, name)
    with pytest.raises(PublishError, match=r"changed meanwhile by .*live_1/out at 20.* \(append"):
        publish_table(spark, name, SPAN, staged, "r", began)
    with pytest.raises(PublishError, match="live_1/out"):
        undo_table(spark, name, SPAN, "other")
    assert content(spark, name) == seen
    assert publish_table(spark, name, SPAN, staged, "r", began, force=True) is not None
    assert "late" not in content(spark, name)


def test_a_rewrite_that_left_the_window_alone_is_no_change(spark: SparkSession, make: Make) -> None:
    name, began = make(), now()
    spark.sql(f"UPDATE {name} SET v = 'other' WHERE id = 10")  # rewrites a file at the window's edge
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name[5:]}', options => map('rewrite-all', 'true'))")
    assert publish_table(spark, name, SPAN, minutes(spark, 30, 120, "new"), "r", began) is not None
    assert content(spark, name) == {
        "old": [id for id in range(240) if id != 10 and not 30 <= id < 150], "other": [10], "new": [*range(30, 150)]
    }  # fmt: skip


def test_commits_during_the_edit(spark: SparkSession, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between writing the files and the commit: elsewhere passes, in the window stops it."""
    name, began = make(), now()
    write = engine._write_branch
    meanwhile = [(300, "elsewhere")]

    def interrupted(*args: object) -> object:
        files = write(*args)  # type: ignore[arg-type]
        for first, v in meanwhile:
            append(spark, name, first, 1, v)
        return files

    monkeypatch.setattr(engine, "_write_branch", interrupted)
    assert publish_table(spark, name, SPAN, minutes(spark, 30, 120, "new"), "r", began) is not None
    assert content(spark, name)["elsewhere"] == [300]
    undo_table(spark, name, SPAN, "r")
    meanwhile[:] = [(100, "inside")]
    seen = content(spark, name)
    with pytest.raises(PublishError, match="changed meanwhile by live_1/out"):
        publish_table(spark, name, SPAN, minutes(spark, 30, 120, "new"), "r", began)
    assert content(spark, name) == {"old": seen["old"], "elsewhere": [300, 300], "inside": [100]}
    assert set(load_table(spark, name).refs()) == {"main", tag_before("r")}, "no branch is left"


def test_an_empty_table_and_rows_without_time(spark: SparkSession, make: Make) -> None:
    name, began = make(hours=0), now()
    assert publish_table(spark, name, SPAN, minutes(spark, 30, 2, "new"), "r", began) is not None
    assert undo_table(spark, name, SPAN, "r") is not None
    assert content(spark, name) == {}
    name = make(hours=1)
    spark.sql(f"INSERT INTO {name} VALUES (999, 'timeless', NULL)")
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name[5:]}', options => map('rewrite-all', 'true'))")
    publish_table(spark, name, SPAN, minutes(spark, 30, 1, "new"), "r", now())
    assert content(spark, name) == {"old": [*range(30)], "new": [30], "timeless": [999]}


def test_keys_outside_the_window_are_refused(spark: SparkSession, make: Make) -> None:
    name = make()
    check_keys(spark, name, SPAN, minutes(spark, 30, 120), ("id",))
    moved = minutes(spark, 30, 1).selectExpr("id + 170 AS id", "v", "at")
    with pytest.raises(PublishError, match="outside it too: id=200"):
        check_keys(spark, name, SPAN, moved, ("id",))


def test_by_key_where_there_is_no_event_time(spark: SparkSession, make: Make) -> None:
    name, began, key = make(hours=1), now(), ("id",)
    before = content(spark, name)
    staged = minutes(spark, 50, 20, "new")
    seen = effect_of_keys(spark, name, staged, key)
    assert (seen.added, seen.changed, seen.removed) == (10, 10, 0)
    append(spark, name, 200, 5)
    check_keys_unchanged(spark, name, staged, key, began)
    assert publish_keys(spark, name, staged, key, "r")
    after = {"old": [*range(50), *range(200, 205)], "new": [*range(50, 70)]}
    assert content(spark, name) == after
    assert not publish_keys(spark, name, staged, key, "r")
    assert undo_keys(spark, name, staged, key, "r")
    assert content(spark, name) == {"old": [*before["old"], *range(200, 205)]}
    assert not undo_keys(spark, name, staged, key, "r")
    assert publish_keys(spark, name, staged, key, "r")
    assert content(spark, name) == after
    spark.sql(f"UPDATE {name} SET v = 'theirs' WHERE id = 55")
    with pytest.raises(PublishError, match="1 of its keys were changed by somebody else"):
        undo_keys(spark, name, staged, key, "r")
    with pytest.raises(PublishError, match="somebody else since the backfill began"):
        check_keys_unchanged(spark, name, staged, key, began)


def test_only_the_chosen_regions(spark: SparkSession) -> None:
    name = f"lake.publish.t{next(_names)}"
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.publish")
    at = f"timestampadd(MINUTE, CAST(id AS INT), TIMESTAMP '{DAY:%Y-%m-%d %H:%M:%S}Z') AS at"
    both = spark.range(0, 240, 1, 1).selectExpr("id", "'old' AS v", at, "IF(id % 2 = 0, 'eu', 'us') AS region")
    both.writeTo(name).using("iceberg").create()
    span = Span("at", SPAN.window, "region", ("eu",))
    staged = both.where("id = 40").selectExpr("id", "'new' AS v", "at", "region")
    assert publish_table(spark, name, span, staged, "r", now()) is not None
    kept = [id for id in range(240) if id % 2 or not 30 <= id < 150]
    assert content(spark, name) == {"old": kept, "new": [40]}
    undo_table(spark, name, span, "r")
    assert content(spark, name) == {"old": [*range(240)]}


_KILLED = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from rekappa.config.model import AppConfig
from rekappa.home import Home
from rekappa.iceberg import window as engine
from rekappa.publish.table import publish_table
from rekappa.iceberg.span import Span
from rekappa.spark.session import open_session
from rekappa.timeline import Window
root, name, point = sys.argv[1:4]
config = AppConfig.model_validate({"app": "bare", "sinks": {"out": {"type": "null"}}, "sources": {"events": {
    "schema": "id BIGINT", "event_time": "id", "candidates": {"live": {"type": "kafka", "topic": "t"}}}}})
spark = open_session(config, "live", Home(Path(root)))
whole = getattr(engine, point)
def dies(*args):
    whole(*args)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(engine, point, dies)
at = "timestampadd(MINUTE, CAST(id AS INT), TIMESTAMP '2026-11-01 00:00:00Z')"
staged = spark.sql(f"SELECT id, 'new' AS v, {at} AS at FROM range(30, 150)")
span = Span("at", Window(datetime(2026, 11, 1, 0, 30, tzinfo=UTC), datetime(2026, 11, 1, 2, 30, tzinfo=UTC)))
publish_table(spark, name, span, staged, "r", datetime.now(UTC))
"""


@pytest.mark.parametrize(("point", "happened"), [("_write_branch", False), ("_commit", True)])
def test_killed_in_the_middle(
    spark: SparkSession, make: Make, home: Home, tmp_path: Path, point: str, happened: bool
) -> None:
    name, began = make(), now()
    before = content(spark, name)
    script = tmp_path / "killed.py"
    script.write_text(_KILLED)
    ended = subprocess.run(
        [sys.executable, str(script), str(home.root), name, point], env=os.environ, capture_output=True, text=True
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
    spark.catalog.refreshTable(name)
    assert published(spark, name, "r") is happened
    assert (content(spark, name) == before) is not happened
    staged = minutes(spark, 30, 120, "new")
    again = publish_table(spark, name, SPAN, staged, "r", began)
    assert (again is None) is happened
    assert content(spark, name) == {"old": [*range(30), *range(150, 240)], "new": [*range(30, 150)]}
    table = load_table(spark, name)
    assert set(table.refs()) == {"main", tag_before("r")}
    found = publication(table, "r")
    assert found is not None
    assert found.snapshot == current_id(table)
