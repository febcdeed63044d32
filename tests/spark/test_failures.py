"""What Spark's real errors are read as: queries and batch jobs that fail for the reasons that jobs fail for."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from project import PATIENCE, Project, wait_until
from pyspark.sql import functions as F
from servers.process import free_port

from rekappa.cli.main import FAILED, REFUSED, Refusal, WorkFailure, reported
from rekappa.config.bind import load_app
from rekappa.errors import RunError, SinkError, WorkFailed
from rekappa.home import Home
from rekappa.runs.live import run_live
from rekappa.runs.queries import QueryProgress
from rekappa.spark.failures import Again, Failure, read_failure
from rekappa.store.record import State
from rekappa.store.runs import RunStore

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def to_noop(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


Fails = Callable[[Callable[["DataFrame"], "DataFrame"], Callable[["DataFrame"], None]], Failure]


@pytest.fixture(params=["query", "batch"])
def fails(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Fails:
    """Runs a job over two rows as a streaming query or as a batch job; answers how its error is read."""
    folder = tmp_path / "rows"
    spark.sql("SELECT id, IF(id = 0, '7', 'seven') AS said FROM range(2)").write.json(str(folder))
    schema = "id BIGINT, said STRING"

    def query(job: Callable[[DataFrame], DataFrame], write: Callable[[DataFrame], None] = to_noop) -> Failure:
        rows = job(spark.readStream.schema(schema).json(str(folder)))
        begun = rows.writeStream.foreachBatch(lambda batch, number: write(batch)).trigger(availableNow=True)
        started = begun.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        with pytest.raises(Exception, match=r"."):
            started.awaitTermination()
        error = started.exception()
        assert error is not None
        return read_failure(error)

    def batch(job: Callable[[DataFrame], DataFrame], write: Callable[[DataFrame], None] = to_noop) -> Failure:
        with pytest.raises(Exception, match=r".") as raised:
            write(job(spark.read.schema(schema).json(str(folder))))
        return read_failure(raised.value)

    return query if request.param == "query" else batch


@pytest.fixture
def broken_table(spark: SparkSession) -> str:
    """An Iceberg table whose only file is gone."""
    table = f"lake.failures.t{uuid4().hex[:8]}"
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.failures")
    spark.range(3).writeTo(table).create()
    for row in spark.table(f"{table}.files").select("file_path").collect():
        Path(row.file_path.removeprefix("file:")).unlink()
    return table


def test_a_function_of_the_job_that_raises(fails: Fails) -> None:
    def unknown_show(number):  # type: ignore[no-untyped-def]  # PySpark would take the types for its own
        raise KeyError("no such show")

    call = F.udf(unknown_show, "bigint")
    found = fails(lambda rows: rows.select(call("id")), to_noop)
    line = unknown_show.__code__.co_firstlineno + 1
    assert found.cause == f"KeyError: 'no such show' ({__file__}:{line} in unknown_show)"
    assert found.again is Again.USELESS
    assert f"{__file__}:{line}" in found.remedy


def whole(column: str) -> Column:
    return F.col(column).cast("int")


def test_a_value_that_can_not_be_cast(fails: Fails) -> None:
    found = fails(lambda rows: rows.select(whole("said")), to_noop)
    assert found.cause.startswith("[CAST_INVALID_INPUT] The value 'seven' of the type \"STRING\" cannot be cast to")
    assert "SQLSTATE" not in found.cause
    assert f"{__file__}:{whole.__code__.co_firstlineno + 1}" in found.cause
    assert found.again is Again.USELESS


def test_a_file_that_is_gone(fails: Fails, broken_table: str) -> None:
    found = fails(lambda rows: rows, lambda rows: to_noop(rows.sparkSession.table(broken_table)))
    assert found.cause.startswith("FileNotFoundException: File file:")
    assert found.file is not None
    assert found.file.endswith(".parquet")
    assert (found.again, found.remedy) == (Again.USELESS, "It will fail again until the file is back.")


def test_a_column_that_is_not_there(fails: Fails) -> None:
    found = fails(lambda rows: rows, lambda rows: to_noop(rows.select("nope")))
    assert found.cause.startswith("[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column")
    assert "LogicalR" not in found.cause, "not the plan"
    assert found.again is Again.USELESS


def test_a_server_that_is_away(fails: Fails) -> None:
    def write(rows: DataFrame) -> None:
        import socket

        socket.create_connection(("127.0.0.1", free_port()), timeout=10)

    found = fails(lambda rows: rows, write)
    assert "ConnectionRefusedError" in found.cause or found.cause.startswith("ConnectionRefusedError")
    assert found.again is Again.HELPS


def test_what_our_own_code_refused(fails: Fails) -> None:
    def write(rows: DataFrame) -> None:
        raise SinkError("Cannot write to 'out': it is full")

    assert fails(lambda rows: rows, write).cause == "Cannot write to 'out': it is full"


def test_a_broker_that_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", f"127.0.0.1:{free_port()}")
    source = source.option("kafka.default.api.timeout.ms", 2000).option("kafka.request.timeout.ms", 1000)
    rows = source.option("subscribe", "nowhere").option("fetchOffset.numRetries", 1).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(Exception, match=r"."):
        query.awaitTermination()
    error = query.exception()
    assert error is not None
    found = read_failure(error)
    assert "TimeoutException" in found.cause
    assert found.again is Again.HELPS


CODE = """
from pyspark.sql import DataFrame, functions as F
from rekappa import App

app = App("failing")

def double(number):
    raise ValueError("no doubles today")

@app.job
def doubled(events: DataFrame) -> DataFrame:
    return events.select(F.udf(double, "bigint")("impression_id").alias("id"))
"""
CONFIG = """
app: failing
sources:
  events:
    schema: impression_id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates: {live: {type: kafka, topic: TOPIC}}
sinks:
  doubled: {type: "null"}
"""


def test_a_live_run_says_what_its_job_raised_and_where(
    spark: SparkSession, home: Home, broker: str, tmp_path: Path
) -> None:
    from confluent_kafka import Producer

    from rekappa.produce.topics import create_topics

    topic = f"failing{uuid4().hex[:8]}"
    project = Project.make(tmp_path / "failing", home, broker, CODE, CONFIG.replace("TOPIC", topic))
    create_topics(broker, [topic])
    producer = Producer({"bootstrap.servers": broker})
    producer.produce(topic, b'{"impression_id": 1, "event_ts": "2026-11-01T00:00:00Z"}')
    assert producer.flush(60) == 0
    with pytest.raises(RunError) as raised:
        project.live()
    assert isinstance(raised.value, WorkFailed)
    place = f"{project.folder / 'app.py'}:8"
    assert raised.value.message == (
        f"Query 'doubled' of job 'doubled' failed: ValueError: no doubles today ({place} in double)"
    )
    assert raised.value.hint == (
        f"It will fail again until {place} is changed. Then run it again: it goes on from the last batch."
    )


def failing(folder: Path, home: Home, broker: str, topic: str, **options: object) -> Project:
    """A project of the folder's name whose job is sound, with these options of its Kafka client."""
    code = CODE.replace('    raise ValueError("no doubles today")', "    return 2 * number")
    code = code.replace('App("failing")', f'App("{folder.name}")')
    cluster = {"bootstrap": broker, "options": options}
    config = (
        CONFIG.replace("TOPIC", topic).replace("app: failing", f"app: {folder.name}")
        + f"clusters: {{main: {json.dumps(cluster)}}}\n"
    )
    config += "profiles: {live: {trigger: 1 second}}\n"
    return Project.make(folder, home, broker, code, config)


def send_one(broker: str, topic: str) -> None:
    from confluent_kafka import Producer

    from rekappa.produce.topics import create_topics

    create_topics(broker, [topic])
    producer = Producer({"bootstrap.servers": broker})
    producer.produce(topic, b'{"impression_id": 1, "event_ts": "2026-11-01T00:00:00Z"}')
    assert producer.flush(60) == 0


def test_a_topic_that_is_missing_is_named_before_anything_starts(home: Home, broker: str, tmp_path: Path) -> None:
    topic = f"missing{uuid4().hex[:8]}"
    project = failing(tmp_path / "failing", Home(tmp_path / ".rekappa"), broker, topic)
    with pytest.raises(Refusal) as refused, reported():
        project.live()
    assert refused.value.exit_code == REFUSED
    assert f"Cannot read source 'events': topic '{topic}' does not exist on cluster 'main'" in refused.value.message
    assert f"--bootstrap-server {broker} --create --topic {topic}" in (refused.value.hint or "")
    assert not (tmp_path / ".rekappa").exists()


def test_a_key_that_the_job_does_not_make(spark: SparkSession, home: Home, broker: str, tmp_path: Path) -> None:
    topic, table = f"keyless{uuid4().hex[:8]}", f"lake.failing.t{uuid4().hex[:8]}"
    send_one(broker, topic)
    project = failing(tmp_path / "failing", home, broker, topic)
    config = project.folder / "rekappa.yaml"
    sink = f"{{type: iceberg, table: {table}, key: [id, day]}}"
    config.write_text(config.read_text().replace('{type: "null"}', sink))
    with pytest.raises(Refusal) as refused, reported():
        project.live()
    assert refused.value.exit_code == REFUSED
    assert "Cannot fill sink 'doubled': its key names day, which is not among the columns" in refused.value.message
    assert not spark.catalog.tableExists(table)


def test_a_broker_that_goes_in_mid_run(
    spark: SparkSession, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rekappa.runs.waiting.SLOW", 1.0)
    from rekappa.stack.broker import down, up

    # Only the broker is another: one Spark has one catalog of a name.
    other = Home(tmp_path / "other")
    topic, broker = "events", up(other).bootstrap
    try:
        send_one(broker, topic)
        quick = {"default.api.timeout.ms": 4000, "request.timeout.ms": 2000, "metadata.max.age.ms": 1000}
        project = failing(tmp_path / "left_alone", home, broker, topic, **quick)
        seen: list[bool] = []
        said: list[str] = []

        def gone(reports: list[QueryProgress]) -> None:
            if sum(report.rows for report in reports):
                seen.append(True)
                down(other)

        with pytest.raises(WorkFailure) as failed, reported():
            run_live(project.loaded, load_app(project.loaded), home, on_progress=gone, tell=said.append)
        assert seen, "it went in mid-run"
    finally:
        down(other)
    assert any(f"waiting for Kafka at {broker}: it does not say what is new in {topic}" in one for one in said), said
    assert failed.value.exit_code == FAILED
    assert failed.value.message.startswith("Query 'doubled' of job 'doubled' failed: Kafka does not answer: ")
    assert "Is the broker up" in (failed.value.hint or "")
    assert "goes on from the last batch" in (failed.value.hint or "")


def test_sparks_own_process_killed(broker: str, tmp_path: Path) -> None:
    topic = f"killed{uuid4().hex[:8]}"
    send_one(broker, topic)
    project = failing(tmp_path / "failing", Home(tmp_path / ".rekappa"), broker, topic)
    process = project.start("run", str(project.folder))
    wait_until(lambda: _rows(project) > 0 or process.poll() is not None, "the first batch is done")
    jvm = next(one for one in _children(process.pid) if "java" in Path(f"/proc/{one}/comm").read_text())
    os.kill(jvm, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    said = project.errors.read_text()
    assert process.returncode == FAILED, said
    assert (
        f"error: Cannot run 'failing': Spark's process {jvm} was killed (SIGKILL), as the system does when memory"
        in said
    )
    assert "hint: Lower spark.driver.memory in the profile" in said
    assert "Traceback" not in said
    assert "py4j" not in said
    (run,) = RunStore.open(project.home).runs()
    assert run.state is State.FAILED
    assert "was killed (SIGKILL)" in (run.error or "")


def _rows(project: Project) -> int:
    if not project.home.store.is_file():
        return 0
    runs = RunStore.open(project.home).runs()
    return sum(one["rows"] for run in runs for one in run.progress.get("queries", ()))


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def test_a_python_that_can_not_be_started(spark: SparkSession, fails: Fails, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python")
    found = fails(lambda rows: rows.select(F.udf(lambda number: number, "bigint")("id")), to_noop)
    assert found.cause.startswith(
        "Python can't be started for the job's functions: there is no program /nowhere/python"
    )
    assert found.again is Again.USELESS
    assert "PYSPARK_PYTHON" in found.remedy


def test_a_python_that_lacks_what_workers_need(
    spark: SparkSession, fails: Fails, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'pyarrow'\" >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(program))
    found = fails(lambda rows: rows.select(F.udf(lambda number: number, "bigint")("id")), to_noop)
    assert found.cause.startswith("Python can't be started for the job's functions: ")
    assert "PYSPARK_PYTHON" in found.remedy
