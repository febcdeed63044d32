"""Canaries: each inner class and method of Spark and Iceberg that rekappa uses, called on its own.

When a new version breaks one, this says which, before anything larger fails for reasons that are hard to see.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.types import LongType, StructField, StructType
from storage_contract import keeps_the_contract

from rekappa.config.model import AppConfig
from rekappa.errors import ConfigError
from rekappa.home import Home
from rekappa.iceberg import private as iceberg
from rekappa.iceberg.tasks import read_tasks
from rekappa.jvm.pyspark_jars import pyspark_folder
from rekappa.spark import private, sharing
from rekappa.spark.direct import direct
from rekappa.spark.releases import check_versions
from rekappa.spark.sharing import require_shared, without
from rekappa.storage.hadoop import HadoopFiles
from rekappa.storage.location import Location
from rekappa.tokens import bucket

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = StructType([StructField("id", LongType())])


class Numbers:
    """The least that Spark's own kind of source must answer: offset n means that the numbers below n were read."""

    class Java:
        implements = private.SOURCE

    def __init__(self, spark: SparkSession, files: str) -> None:
        self.spark, self.files = spark, files

    def schema(self) -> Any:
        return private.java_schema(self.spark, SCHEMA)

    def latestOffset(self, start: Any, limit: Any) -> Any:
        return private.offset_of(self.spark, "2")

    def getBatch(self, start: Any, end: Any) -> Any:
        first = int(start.get().json()) if start.isDefined() else 0
        assert int(end.json()) == 2
        if first:
            return private.as_stream_batch(self.spark, self.spark.range(first, 2))
        files: Any = private.files_as_stream(self.spark, self.spark.read.parquet(self.files))._jdf
        return files

    def deserializeOffset(self, text: str) -> Any:
        return private.offset_of(self.spark, text)

    def initialOffset(self) -> Any:
        return private.offset_of(self.spark, "0")

    def getDefaultReadLimit(self) -> Any:
        return private.read_all(self.spark)

    def reportLatestOffset(self) -> Any:
        return None

    def commit(self, end: Any) -> None:
        pass

    def stop(self) -> None:
        pass

    def equals(self, other: Any) -> bool:
        return other is self

    def hashCode(self) -> int:
        return 7

    def toString(self) -> str:
        return "numbers"


class CountedNumbers(Numbers):
    """One number for each batch, up to two of them."""

    class Java:
        implements = private.SOURCE_THAT_ENDS

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: Any, limit: Any) -> Any:
        return private.offset_of(self.spark, str(min(2, int(start.json()) + 1 if start is not None else 1)))

    def getBatch(self, start: Any, end: Any) -> Any:
        first = int(start.get().json()) if start.isDefined() else 0
        return private.as_stream_batch(self.spark, self.spark.range(first, int(end.json())))


def test_spark(spark: SparkSession, tmp_path: Path) -> None:
    check_versions(spark)
    assert private.estimated_bytes(spark, spark.range(10)) == 80
    assert private.heap_bytes(spark) > 0
    files = str(tmp_path / "numbers")
    spark.range(0, 2, 1, 1).write.parquet(files)
    own = private.cloned(spark)
    private.activate(own)
    private.activate(spark)
    first = private.stream_of(spark, Numbers(spark, str(tmp_path / "nothing")), SCHEMA)
    asked: list[str] = []

    def other(source: Any) -> Numbers:
        asked.append(source.toString())
        return Numbers(spark, files)

    stream = private.with_sources(spark, first, other)
    assert asked == ["numbers"]
    assert stream.isStreaming
    assert private.analysed(stream).toString().strip() == "numbers"
    private.check_for_streaming(spark, private.analysed(stream), "append")
    with pytest.raises(AnalysisException):
        private.check_for_streaming(spark, private.analysed(stream.groupBy("id").count()), "append")
    got: list[int] = []
    started = stream.writeStream.foreachBatch(lambda rows, number: got.extend(row.id for row in rows.collect()))
    query = started.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.processAllAvailable()
    assert private.move_watermark(query, 5000) == 0
    assert private.move_watermark(query, 1000) == 5000, "it never goes back"
    private.set_watermark(query, 2000)
    assert private.move_watermark(query, 0) == 2000
    query.stop()
    assert sorted(got) == [0, 1]
    ending = private.stream_of(spark, CountedNumbers(spark, files), SCHEMA)
    started = ending.writeStream.foreachBatch(lambda rows, number: got.append(100 * number + rows.count()))
    ended = started.option("checkpointLocation", str(tmp_path / "ending")).trigger(availableNow=True).start()
    ended.awaitTermination()
    assert got[2:] == [1, 101], "one batch for each number, then it ends by itself"
    jvm: Any = spark._jvm
    classes = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in (private.ROCKSDB, private.IN_MEMORY, private.PLAIN_CHECKPOINT_FILES, *private.SOURCE_THAT_ENDS):
        assert classes.loadClass(name)


def test_pages_without_rows_in_the_bounds_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    first, files = 1 << 40, str(tmp_path / "numbers")
    rows = spark.range(first, first + 200_000, 1, 1).selectExpr("named_struct('n', id) AS inner")
    rows.write.option("parquet.page.row.count.limit", "10000").parquet(files)
    options = private.Pages(spark, "inner.n").between(first + 25_000, first + 35_000)
    read = spark.read.options(**options).parquet(files).selectExpr("inner.n - 1099511627776 AS n")
    found = {row.n for row in read.collect()}
    assert found >= set(range(25_000, 35_000))
    assert len(found) <= 30_000, "only whole pages around the bounds come with them"
    assert private.Pages(spark, "inner.n").between(1, 2) == {}


def test_a_java_function_of_ours_is_called_for_every_row(spark: SparkSession) -> None:
    """It asks a bucket for each row, and lets it pass; where no bucket is, no row passes."""
    found = bucket("127.0.0.1", "canary", 1e9)
    made = private.constructor(spark, "rekappa.Turnstile")
    for port, secret in ((found.port, found.secret), (1, b"nobody listens")):
        function = made(found.host, port, secret, found.number, 1)
        rows = private.cloned(spark).range(0, 100, 1, 2).where(private.always_called(spark, function, "canary"))
        if port == found.port:
            assert rows.count() == 100
        else:
            with pytest.raises(Exception, match="rate limiter"):
                rows.count()


def test_no_process_is_started_for_a_file(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop's own local file system would run `chmod` and `readlink`: both interfaces to it are ours."""
    jvm: Any = spark._jvm
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    where = jvm.org.apache.hadoop.fs.Path(f"file://{tmp_path}/made")
    files = where.getFileSystem(hadoop)
    assert files.getClass().getName() == "rekappa.LocalFiles"
    context = jvm.org.apache.hadoop.fs.FileContext.getFileContext(where.toUri(), hadoop)
    assert context.getDefaultFileSystem().getClass().getName() == "rekappa.LocalFiles$Context"
    private_only = jvm.org.apache.hadoop.fs.permission.FsPermission("700")
    files.mkdirs(where, private_only)
    assert tmp_path.joinpath("made").stat().st_mode & 0o777 == 0o700
    tmp_path.joinpath("link").symlink_to(tmp_path / "made")
    assert context.getFileLinkStatus(jvm.org.apache.hadoop.fs.Path(f"{tmp_path}/link")).isSymlink()
    plainly = spark.sparkContext._gateway.new_array(getattr(jvm.org.apache.hadoop.fs, "Options$Rename"), 0)  # type: ignore[union-attr]
    context.rename(where, jvm.org.apache.hadoop.fs.Path(f"{tmp_path}/moved"), plainly)
    assert tmp_path.joinpath("moved").is_dir()


def test_a_stream_as_a_batch_query_over_other_leaves(spark: SparkSession) -> None:
    """Columns are carried past projections and unions that do not name them; watermarks are gone."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    schema = StructType().add("id", "long").add("at", "timestamp")
    leaf = private.stream_leaf(spark, schema)
    assert leaf.isStreaming
    timed = leaf.withWatermark("at", "1 minute").where("id < 3").select((F.col("id") + 10).alias("more"), "at")
    both = timed.union(leaf.select(F.col("id").alias("more"), "at"))
    batches = [
        spark.range(number, number + 2).select("id", F.lit("2026-11-01").cast("timestamp"), F.lit(number).alias("mark"))
        for number in (0, 2)
    ]
    rows = private.united(spark, batches)
    assert rows.count() == 4
    plan = private.with_leaves(
        spark, private.analysed(both), lambda own: rows if own == private.leaf_id(leaf) else None, ("mark",)
    )
    found, seen = private.frame_of(spark, plan), Observation()
    assert not private.observed(seen, 0)
    told = sorted((row.more, row.mark) for row in found.observe(seen, F.count(F.lit(1)).alias("n")).collect())
    assert told == [(0, 0), (1, 0), (2, 2), (3, 2), (10, 0), (11, 0), (12, 2)]
    assert private.observed(seen)
    assert seen.get == {"n": 7}
    # A filter that stands after the watermark is applied before it, as in a running stream.
    watermark = private.optimised(spark, timed).toString()
    assert watermark.index("EventTimeWatermark") < watermark.index("Filter")


def test_iceberg(spark: SparkSession) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.private")
    name = "lake.private.canary"
    spark.sql(f"CREATE TABLE {name} (id BIGINT, part STRING) USING iceberg PARTITIONED BY (part)")
    for number in range(2):
        spark.sql(f"INSERT INTO {name} VALUES ({number}, 'a'), ({number + 10}, 'b')")
    table = iceberg.java_table(spark, name)
    filters = iceberg.Filters(spark)
    few = filters.all_of([filters.at_least("id", 0), filters.below("id", 1), filters.among("part", ["a"])])
    tasks = iceberg.planned(spark, table.newScan().filter(few).includeColumnStats())
    assert [task.file().recordCount() for task in tasks] == [1]
    file = tasks[0].file()
    assert filters.touching(table, few).eval(file)
    assert not filters.touching(table, filters.at_least("id", 5)).eval(file)
    assert filters.covering(table, filters.at_most("id", 0)).eval(file)
    assert filters.partition_fits(table, few, file)
    assert not filters.partition_fits(table, filters.among("part", ["b"]), file)
    assert not iceberg.planned(spark, table.newScan().filter(filters.never))
    with read_tasks(spark, table, tasks) as rows:
        assert [row.id for row in rows.collect()] == [0]
    changed = iceberg.changed_files(spark, table, table.currentSnapshot())
    assert len(iceberg.listed(spark, changed.addedDataFiles())) == 2
    assert '"part"' in iceberg.schema_json(spark, table.schema())
    order = iceberg.sort_order(spark, table, ["id"])
    done = iceberg.rewrite_action(spark, table).sort(order).option("min-input-files", "2").execute()
    assert done.rewrittenDataFilesCount() == 4
    with pytest.raises(Exception, match="no_such"):
        iceberg.java_table(spark, "lake.private.no_such")


@pytest.mark.parametrize(
    ("sql", "change"),
    [
        ("with a as (select 1) select * from a where exists (select 2)", None),
        ("with a as (select 1) insert into lake.x.y select * from a", "InsertInto"),
        ("from a insert into lake.x.y select *", "InsertInto"),
        ("select transform(x) using 'cat' from a", "ScriptTransformation"),
        ("drop table lake.x.y", "DropTable"),
        ("from a insert overwrite directory '/x' using csv select id", "InsertIntoDir"),
        ("with t as (select transform(x) using 'cat' as (y) from a) select * from t", "ScriptTransformation"),
        ("select (select transform(x) using 'cat' as (y) from a)", "ScriptTransformation"),
        ("select 1 where exists (select transform(x) using 'cat' as (y) from a)", "ScriptTransformation"),
        ("select java_method('java.lang.System', 'exit', 1)", "java_method"),
        ("select * from a order by `reflect`('x', 'y')", "reflect"),
        ("select 'reflect(x)', upper('java_method') from a", None),
    ],
)
def test_statements_that_change_something(spark: SparkSession, sql: str, change: str | None) -> None:
    assert private.changes_something(spark, sql) == change


def test_hadoops_own_file_systems_keep_the_contract(spark: SparkSession, tmp_path: Path) -> None:
    keeps_the_contract(Location(HadoopFiles("file:"), str(tmp_path / "new")))


def test_a_folder_that_executors_do_not_have_is_refused(
    spark: SparkSession, bare_config: AppConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_shared(spark, bare_config, Home(tmp_path))
    assert list(tmp_path.iterdir()) == [], "nothing is left of the look"
    assert without(spark, str(tmp_path / "not there")) == [gethostname()]
    monkeypatch.setattr(sharing, "without", lambda *_: ["worker-7"])
    with pytest.raises(ConfigError, match=r"executors on worker-7 do not have .*REKAPPA_STORAGE"):
        require_shared(spark, bare_config, Home(tmp_path))


def test_java_is_given_what_sparks_launcher_would_give_it(tmp_path: Path) -> None:
    """The options that we start the JVM with ourselves, beside what Spark's own launcher writes on its command line."""
    order = direct({}, (), tmp_path / "log", ())
    assert order is not None
    launcher = [order.command[0], "-cp", f"{pyspark_folder()}/jars/*", "org.apache.spark.launcher.Main"]
    said = subprocess.run(
        [*launcher, "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"],
        env={"SPARK_HOME": str(pyspark_folder()), "SPARK_SCALA_VERSION": "2.13", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = said.stdout.replace("\0", " ").split()
    options = {one for one in theirs if one.startswith("-") and one != "-cp" and not one.startswith("-Xmx")}
    assert {one for one in order.command if one.startswith("-") and not one.startswith(("-cp", "-Xmx"))} == {
        one for one in options if not one.startswith("--conf") and one != "--name"
    }
