"""Spark's classes, read once and kept as the JVM wants them: a session then starts seconds sooner.

    python -m rekappa.spark.classes      # makes the archive, unless it is there; `make jars` does it

Java calls it class-data sharing. The archive is of this Java, this PySpark and its jars: another one of any of them
gets its own. A JVM that does not like an archive starts without it, as does one for which none was made.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rekappa.home import Home
from rekappa.jvm.cache import cache_folder
from rekappa.jvm.compiled import compiled
from rekappa.jvm.jars import jars
from rekappa.jvm.java import java
from rekappa.jvm.pyspark_jars import pyspark_folder, pyspark_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE = 300
_APP = {
    "app": "classes",
    "sources": {
        "events": {
            "schema": "id BIGINT",
            "event_time": "id",
            "candidates": {"live": {"type": "kafka", "topic": "events"}},
        }
    },
    "sinks": {"out": {"type": "null"}},
}


def archive() -> Path:
    """Where the archive is, or would be."""
    chosen = java().resolve()
    release = chosen.parent.parent / "release"
    own = [str(jar) for jar in (compiled(), *jars("spark"))]
    spark = [str(pyspark_folder()), *(one.name for one in pyspark_jars("spark-core_*"))]
    of = [str(chosen), release.read_text() if release.is_file() else "", spark, own]
    return cache_folder() / "classes" / f"{hashlib.sha256(repr(of).encode()).hexdigest()[:16]}.jsa"


def sharing() -> list[str]:
    """The JVM's options to start with the archive; none where there is no archive."""
    found = archive()
    return ["-Xshare:auto", f"-XX:SharedArchiveFile={found}"] if found.is_file() else []


def make() -> bool:
    """Start Spark, let it do a little of everything, and keep the classes that it loaded. False if Java would not."""
    from rekappa.config.model import AppConfig
    from rekappa.spark.session import open_session

    wanted = archive()
    wanted.parent.mkdir(parents=True, exist_ok=True)
    fresh = wanted.with_name(f"{wanted.stem}-{os.getpid()}.new")
    config = AppConfig.model_validate(_APP)
    with tempfile.TemporaryDirectory() as folder:
        options = {"spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={fresh}"'}
        spark = open_session(config, "backfill", Home(Path(folder)), **options)
        _use(spark, Path(folder))
        process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        spark.stop()
        # The JVM ends when nobody speaks to it any more, and writes the archive then.
        process.stdin.close()
        try:
            process.wait(_PATIENCE)
        finally:
            process.kill()
    if not fresh.is_file():
        return False
    fresh.replace(wanted)
    return True


def _use(spark: SparkSession, folder: Path) -> None:
    from pyspark.sql import functions as F

    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.classes")
    rows = spark.range(0, 1000, 1, 2).selectExpr("id", "id % 10 AS k", "timestamp_seconds(id) AS at", "struct(id) AS s")
    for name in ("one", "other"):
        rows.writeTo(f"lake.classes.{name}").using("iceberg").create()
    joined = spark.sql(
        "SELECT o.id, p.k, o.at FROM lake.classes.one o LEFT JOIN lake.classes.other p "
        "ON o.id = p.id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 MINUTE WHERE o.s.id >= 0"
    )
    joined.writeTo("lake.classes.one").append()
    joined.groupBy("k").count().collect()
    files = str(folder / "files")
    rows.write.parquet(files)
    names = spark.createDataFrame([("none", 1)], "file STRING, number INT")
    read = spark.read.schema(rows.schema).parquet(files)
    told = read.join(F.broadcast(names), F.col("_metadata.file_name") == F.col("file"), "left")
    sorted_by_key = told.repartition(2, "k").sortWithinPartitions("k", "id").select("id", "k", "at")
    sorted_by_key.mapInArrow(lambda batches: batches, "id BIGINT, k BIGINT, at TIMESTAMP").groupBy("k").agg(
        F.max("at")
    ).collect()
    stream = spark.readStream.schema(rows.schema).parquet(files).withWatermark("at", "1 minute")
    counted = stream.groupBy("k").count().writeStream.format("noop").outputMode("update")
    counted.option("checkpointLocation", str(folder / "log")).trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    """Never fails: without an archive Spark starts as well, only later."""
    if archive().is_file():
        return
    print("rekappa: keeping Spark's classes for quicker starts, once per user …", file=sys.stderr, flush=True)
    try:
        why = "" if make() else "this Java writes none"
    except Exception as error:
        why = f"{type(error).__name__}: {error}".splitlines()[0]
    if why:
        print(f"rekappa: Spark starts without kept classes ({why})", file=sys.stderr)


if __name__ == "__main__":
    main()
