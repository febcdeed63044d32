"""Publishing a staged window to sinks other than Iceberg, and undoing it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from publish_until_killed import COUNT, slow_publisher
from publishing import effect, part, publish, undo
from pyspark.sql import functions as F
from sink_rows import content, rows

from rekappa.errors import PublishError, SinkError
from rekappa.publish.make import plan_of
from rekappa.publish.plan import Effect, PublishState
from rekappa.publish.publishers.adding import AddingPublisher
from rekappa.publish.publishers.keyed import KeyedPublisher
from rekappa.sinks.contract import BatchId
from rekappa.sinks.kafka import KafkaSink
from rekappa.sinks.parquet import ParquetSink
from rekappa.sinks.postgres import Postgres
from rekappa.sinks.rate import rate_limited
from rekappa.sinks.registry import open_sink
from rekappa.sinks.service import ServiceSink
from rekappa.tokens import passed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rekappa.config.model import AppConfig
    from rekappa.home import Home


def staged_rows(spark: SparkSession) -> DataFrame:
    """The window made anew: 10 to 14 are gone, 15 to 19 differ, 1000 is new, the rest is as it was."""
    kept = rows(spark, 15, 40).withColumn("name", F.when(F.col("id") < 20, F.lit("fixed")).otherwise(F.col("name")))
    new = rows(spark, 30, 31).withColumn("id", F.lit(1000).cast("bigint"))
    return kept.union(new)


ELSEWHERE = 2000
"""Rows outside the window that publishing has no business with."""


@pytest.mark.parametrize("kind", ["postgres", "cassandra", "opensearch"])
def test_a_keyed_sink_takes_the_window_and_gives_it_back(
    spark: SparkSession, sink_config: AppConfig, home: Home, kind: str
) -> None:
    name = f"{kind}_published"
    sink = open_sink(name, sink_config, home)
    production, staged = rows(spark, 0, 60).union(rows(spark, 3000, 3000 + ELSEWHERE)), staged_rows(spark)
    sink.prepare(spark, production.schema)
    sink.write(production, BatchId("live", "query", 0))
    capped = rate_limited(open_sink(name, sink_config, home), 1_000_000)
    assert isinstance(capped, ServiceSink)
    it = KeyedPublisher(part(sink_config, name, staged), kind, capped)
    expected = Effect(added=1, changed=5, removed=5, unchanged=20)
    assert effect(it) == expected
    assert content(sink.read(spark)) == content(sink.as_stored(production))
    # What was read passed the cap: the window's 30 rows, and one question for the key that is not among them.
    assert passed(f"sink {name}") == 31

    assert publish(it) == expected
    outside = production.where("id < 10 OR id >= 40")
    published = content(sink.as_stored(outside.union(staged)))
    assert content(sink.read(spark)) == published
    assert publish(it) == Effect(unchanged=26)
    assert content(sink.read(spark)) == published

    # The live job goes on: a row of the window changes once more, and a new one comes.
    later = rows(spark, 16, 17).withColumn("note", F.lit("live")).union(rows(spark, 60, 61))
    sink.write(later, BatchId("live", "query", 1))
    assert undo(it) == Effect(added=5, changed=4, removed=1, unchanged=20, kept=1)
    assert content(sink.read(spark)) == content(sink.as_stored(production.where("id != 16").union(later)))
    assert undo(it) == Effect()
    assert passed(f"sink {name}") < 300, "the rows elsewhere were never read"


def test_a_plan_that_was_overtaken_is_refused(spark: SparkSession, sink_config: AppConfig, home: Home) -> None:
    sink = open_sink("postgres_overtaken", sink_config, home)
    assert isinstance(sink, ServiceSink)
    production = rows(spark, 0, 60)
    sink.prepare(spark, production.schema)
    sink.write(production, BatchId("live", "query", 0))
    it = KeyedPublisher(part(sink_config, sink.name, staged_rows(spark)), "postgres", sink)
    plan = plan_of(it, PublishState.NEVER)
    theirs = rows(spark, 12, 13).withColumn("note", F.lit("theirs"))
    sink.write(theirs, BatchId("live", "query", 1))
    with pytest.raises(PublishError, match="changed since the plan was made"):
        it.publish(plan, lambda: pytest.fail("nothing may be touched"))
    held = content(sink.as_stored(production.where("id != 12").union(theirs)))
    assert content(sink.read(spark)) == held
    # Killed when the table for the copy was made, and nothing was in it yet: there is nothing to take back.
    it.part.before(it.part.run).prepare(spark, sink.read(spark).schema)
    assert undo(it) == Effect()
    assert content(sink.read(spark)) == held
    # Killed when the copy was whole; then somebody else writes what it does not hold.
    with it._compared() as compared:
        it._save(compared)
    sink.write(rows(spark, 13, 14).withColumn("note", F.lit("theirs too")), BatchId("live", "query", 2))
    held = content(sink.read(spark))
    with pytest.raises(PublishError, match="somebody else has changed 1 of its rows"):
        effect(it)
    undo(it)
    assert content(sink.read(spark)) == held


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("kind", ["postgres", "cassandra", "opensearch"])
def test_killed_while_publishing_and_while_undoing(
    spark: SparkSession, sink_config: AppConfig, sink_servers: dict[str, Any], home: Home, kind: str
) -> None:
    """kill -9 in the middle of either leaves a part done; the same call again does the rest."""
    it = slow_publisher(spark, sink_config, home, kind, None)
    production = rows(spark, 0, COUNT)
    it.sink.prepare(spark, production.schema)
    it.sink.write(production, BatchId("live", "query", 0))
    before, after = (content(it.sink.as_stored(frame)) for frame in (production, it.part.rows))

    _killed_half_way("publish", it, sink_servers, home)
    assert content(it.sink.read(spark)) not in (before, after)
    publish(it)
    assert content(it.sink.read(spark)) == after
    if kind != "postgres":
        return  # Undoing sends rows as publishing does: once is enough.
    _killed_half_way("undo", it, sink_servers, home)
    assert content(it.sink.read(spark)) not in (before, after)
    undo(it)
    assert content(it.sink.read(spark)) == before


def _killed_half_way(action: str, it: KeyedPublisher, servers: dict[str, Any], home: Home) -> None:
    """Let another process do it, and kill that once some of the rows are other than before and some are not."""
    spec, log = home.root / "publish_servers.json", home.root / f"{action}_killed.log"
    spec.write_text(json.dumps(servers))
    service: Any = it.sink.service
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, Path(__file__).parent / "publish_until_killed.py", spec, home.root, it.target, action],
            stderr=errors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )
    try:
        while process.poll() is None:
            fixed = sum(row["name"] == "fixed" for row in service.read(0, 1, None))
            if 0 < fixed < COUNT:
                break
            time.sleep(0.02)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        ended = process.wait()
    assert ended == -signal.SIGKILL, log.read_text()[-3000:]


def test_parquet_takes_the_rows_once_and_gives_them_back(
    spark: SparkSession, sink_config: AppConfig, home: Home
) -> None:
    sink = open_sink("parquet_published", sink_config, home)
    assert isinstance(sink, ParquetSink)
    production, staged = rows(spark, 0, 10), rows(spark, 10, 40)
    it = AddingPublisher(part(sink_config, sink.name, staged), "parquet", sink, sink)
    assert effect(it) == Effect(added=30), "nothing is there yet"
    sink.prepare(spark, production.schema)
    sink.write(production, BatchId("live", "query", 0))
    assert effect(it) == Effect(added=30)
    for _ in range(2):
        publish(it)
        assert content(sink.read(spark)) == content(rows(spark, 0, 40))
    undo(it)
    assert content(sink.read(spark)) == content(production)
    sink.write(rows(spark, 20, 30), BatchId("live", "query", 1))
    with pytest.raises(PublishError, match="holds 10 rows of the window already"):
        effect(it)


def test_a_sink_that_cannot_be_read_is_not_taken_for_an_empty_one(
    spark: SparkSession, sink_config: AppConfig, home: Home
) -> None:
    """What is there decides whether adding rows doubles them: if it can't be told, publishing stops."""
    sink = open_sink("parquet_overtaken", sink_config, home)
    assert isinstance(sink, ParquetSink)
    sink.prepare(spark, rows(spark, 0, 1).schema)
    sink.write(rows(spark, 10, 40), BatchId("live", "query", 0))
    for file in Path(sink.path.removeprefix("file:")).glob("batch=*/*.parquet"):
        file.write_bytes(b"damaged")
        file.with_name(f".{file.name}.crc").unlink()
    it = AddingPublisher(part(sink_config, sink.name, rows(spark, 10, 40)), "parquet", sink, sink)
    with pytest.raises(Exception, match=r"(?i)parquet"):
        effect(it)
    name = "kafka_published"
    gone = KafkaSink(name, "anything", {"kafka.bootstrap.servers": "127.0.0.1:9"}, home.storage / "gone")
    with pytest.raises(SinkError, match="Cannot read Kafka topic 'anything'"):
        effect(AddingPublisher(part(sink_config, name, rows(spark, 10, 40)), "kafka", gone))


def test_kafka_takes_the_rows_once_and_says_whose_they_are(
    spark: SparkSession, sink_config: AppConfig, home: Home, broker: str
) -> None:
    sink = open_sink("kafka_published", sink_config, home)
    assert isinstance(sink, KafkaSink)
    staged = rows(spark, 10, 40)
    it = AddingPublisher(part(sink_config, sink.name, staged), "kafka", sink)
    assert effect(it) == Effect(added=30), "there is no topic yet"
    for _ in range(2):
        publish(it)
    assert content(sink.read(spark)) == content(staged)
    loaded = spark.read.format("kafka").option("kafka.bootstrap.servers", broker).option("subscribe", sink.topic)
    messages = loaded.option("includeHeaders", "true").load().select("key", "headers").collect()
    assert {bytes(one.key).decode() for one in messages} == {str(number) for number in range(10, 40)}
    said = {tuple((header.key, bytes(header.value).decode()) for header in one.headers) for one in messages}
    assert said == {(("rekappa-run", "run-7"), ("rekappa-query", "publish"), ("rekappa-batch", "0"))}
    with pytest.raises(PublishError, match="what was sent stays"):
        undo(it)


def test_postgres_finds_keys_by_its_index(sink_servers: dict[str, Any]) -> None:
    """Looking up a few keys of a large table reads these rows and no others, by the server's own count."""
    import pyarrow as pa

    login = sink_servers["postgres"]
    service = Postgres(table="large", key=("id",), event_time="at", **login)
    with service._connect() as connection:
        connection.execute("CREATE TABLE large (id BIGINT PRIMARY KEY, at TIMESTAMPTZ)")
        connection.execute("INSERT INTO large SELECT n, to_timestamp(n * 60) FROM generate_series(0, 50000) n")
        connection.execute("ANALYZE large")

    def seen() -> int:
        """Rows that were read one after the other."""
        with service._connect() as connection:
            connection.execute("SELECT pg_stat_force_next_flush()")
        with service._connect() as connection:
            found = connection.execute("SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'large'")
            return int(found.fetchone()[0])

    before = seen()
    keys = pa.RecordBatch.from_pydict({"id": pa.array([5, 7, 99_999], pa.int64())})
    assert {row["id"] for row in service.look_up(iter([keys]))} == {5, 7}
    assert seen() == before


def test_a_postgres_table_without_a_unique_key_is_refused(
    spark: SparkSession, sink_config: AppConfig, home: Home
) -> None:
    from dataclasses import replace

    service: Any = open_sink("postgres_keys", sink_config, home)
    bare = replace(service.service, table="bare")
    with bare._connect() as connection:
        connection.execute("CREATE TABLE bare (id BIGINT)")
    with pytest.raises(SinkError, match="no unique constraint on"):
        bare.prepare(spark.range(1).schema)
    with pytest.raises(SinkError, match="Cannot reach PostgreSQL") as caught:
        replace(bare, password="hush-hush").prepare(spark.range(1).schema)
    assert "hush-hush" not in str(caught.value)
