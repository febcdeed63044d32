"""A team's servers and machines for the cluster's story: what a driver is told, and what is found afterwards.

A gate lets a test choose the moment of a kill: while it is closed, a task that comes to the app's function says so and
waits.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from project import wait_until
from servers.postgres import PostgresServer
from servers.s3 import S3Server
from servers.secured_kafka import PASSWORD as KAFKA_PASSWORD
from servers.secured_kafka import SecuredKafka
from servers.spark_cluster import SparkCluster
from sqlalchemy import create_engine, text

from rekappa.demo.events import Event
from rekappa.demo.produce import produce
from rekappa.sources.kafka import for_librdkafka
from rekappa.store.address import Address

START = datetime(2026, 11, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TOPIC = "clustered_events"
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Executors come and go here: one that lives for a minute is done sooner without the optimising compiler."""
CATALOG_SECRET = "catalog-hidden-from-all"
CODE = '''
import os
import time

from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from neighbour import gate
from rekappa import App

app = App("clustered")


def scaled(value):
    """Tells that it is at work, waits while the gate is closed, and uses what only the environment archive has."""
    from only_in_the_archive import FACTOR

    if os.path.exists(gate("closed")):
        with open(gate(f"at-{os.getppid()}-{os.getpid()}"), "w"):
            pass
        while os.path.exists(gate("closed")):
            time.sleep(0.05)
    return value * FACTOR


@app.job
def totals(events):
    scale = F.udf(scaled, LongType())
    timed = events.withColumn("scaled", scale("v")).withWatermark("event_ts", "5 minutes")
    grouped = timed.groupBy(F.window("event_ts", "10 minutes"), "user")
    return grouped.agg(F.sum("scaled").alias("total")).select(F.col("window.start").alias("at"), "user", "total")
'''
NEIGHBOUR = """
FOLDER = "{gate}"


def gate(name):
    return FOLDER + "/" + name
"""
FACTOR = 3


@dataclass(frozen=True, slots=True)
class Servers:
    """What a team has: everything but the driver's machine."""

    folder: Path
    kafka: SecuredKafka
    s3: S3Server
    catalog: str
    cluster: SparkCluster
    postgres: PostgresServer
    store: str

    @property
    def gate(self) -> Path:
        return self.folder / "gate"

    def config(self) -> dict[str, Any]:
        login = {"host": "127.0.0.1", "port": self.postgres.port, "user": self.postgres.user}
        profile = {
            "master": self.cluster.master,
            "environment": str(self.folder / "environment.tar.gz"),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "640m",
            "spark.executor.memory": "512m",
            "spark.executor.cores": 1,
            "spark.driver.extraJavaOptions": SHORT_LIVED,
            "spark.executor.extraJavaOptions": SHORT_LIVED,
            "spark.sql.shuffle.partitions": 2,
            "spark.ui.enabled": True,
            "spark.eventLog.enabled": True,
            "spark.eventLog.compress": False,
            "spark.eventLog.dir": f"file:{self.folder / 'history'}",
            "spark.executor.heartbeatInterval": "2s",
            # Nobody answers there: every path must say of itself where it is.
            "spark.hadoop.fs.defaultFS": "hdfs://127.0.0.1:9",
        }
        catalog = {
            "type": "rest",
            "uri": self.catalog,
            "warehouse": f"s3a://{self.s3.bucket}/warehouse",
            "options": {
                "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
                "s3.endpoint": self.s3.endpoint,
                "s3.region": self.s3.region,
                "s3.access-key-id": "${AWS_ACCESS_KEY_ID}",
                "s3.secret-access-key": "${AWS_SECRET_ACCESS_KEY}",
                "header.X-Api-Key": "${CATALOG_SECRET}",
            },
        }
        past = {"type": "iceberg", "table": "lake.clustered.events"}
        totals = {"type": "iceberg", "table": "lake.clustered.totals", "mode": "append", "key": ["at", "user"]}
        served = {"type": "postgres", "job": "totals", "database": self.postgres.database, "table": "clustered",
                  "key": ["at", "user"], "password": "${SINK_PASSWORD}"}  # fmt: skip
        return {
            "app": "clustered",
            "clusters": {"main": {"bootstrap": self.kafka.bootstrap, "options": login_by_reference(self.kafka)}},
            "catalogs": {"lake": catalog},
            "sources": {
                "events": {
                    "schema": "user BIGINT, v BIGINT, event_ts TIMESTAMP",
                    "event_time": "event_ts",
                    "candidates": {"live": {"type": "kafka", "topic": TOPIC}, "backfill": past},
                }
            },
            "sinks": {"totals": {**totals, "event_time": "at"}, "served": {**served, **login, "event_time": "at"}},
            "profiles": dict.fromkeys(("live", "backfill", "archive"), profile),
        }

    def environ(self) -> dict[str, str]:
        return {
            **self.s3.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "REKAPPA_STORE": self.store,
            "REKAPPA_STORAGE": self.s3.address("rekappa"),
            "CATALOG_SECRET": CATALOG_SECRET,
            "SINK_PASSWORD": self.postgres.password,
            "KAFKA_LOGIN": self.kafka.options()["sasl.jaas.config"],
        }

    def secrets(self) -> dict[str, str]:
        # Of Kafka's the end that looks the same however quotes and backslashes are written.
        return {"of S3": self.s3.secret, "of the catalog": CATALOG_SECRET, "of PostgreSQL": self.postgres.password,
                "of Kafka": KAFKA_PASSWORD[-4:]}  # fmt: skip

    def produce(self, first: int, last: int) -> None:
        """The events of these minutes."""
        options = {"bootstrap.servers": self.kafka.bootstrap, **self.kafka.options()}
        produce(for_librdkafka(options), events(first, last), prefixes=False)


def login_by_reference(kafka: SecuredKafka) -> dict[str, str]:
    """As a person would write it: nothing secret, and no file that executors would have to have."""
    told = {**kafka.options(), "sasl.jaas.config": "${KAFKA_LOGIN}"}
    del told["ssl.truststore.location"]
    return {**told, "ssl.truststore.certificates": kafka.certificate.read_text()}


def pack_environment(file: Path) -> None:
    """An environment as packers make it: bin/python, and packages that nothing else here has."""
    start = f'#!/bin/sh\nPYTHONPATH="$(dirname "$0")/../site:$PYTHONPATH" exec {sys.executable} "$@"\n'
    with tarfile.open(file, "w:gz") as packed:
        for name, content in (("bin/python", start), ("site/only_in_the_archive.py", f"FACTOR = {FACTOR}\n")):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            packed.addfile(entry, io.BytesIO(content.encode()))


@dataclass
class Driver:
    """A machine that has the app's folder, and `rekappa` on it."""

    servers: Servers
    folder: Path
    process: subprocess.Popen[str] = field(init=False)
    told: tuple[str, ...] = ()
    since: float = 0.0
    passed: dict[str, int] = field(default_factory=dict)
    """How many rows passed the cap of each sink, as of the last answer."""

    def __post_init__(self) -> None:
        app = self.folder / "app"
        app.mkdir(parents=True)
        (self.folder / "home").mkdir()
        (app / "app.py").write_text(CODE)
        (app / "neighbour.py").write_text(NEIGHBOUR.format(gate=self.servers.gate))
        (app / "rekappa.yaml").write_text(json.dumps(self.servers.config()))
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "JAVA_HOME", "LANG") if name in os.environ}
        cache = {"XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))}
        with (self.folder / "stderr").open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, Path(__file__).with_name("cluster_driver.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=self.folder,
                env={**kept, **cache, **self.servers.environ(), "HOME": str(self.folder / "home")},
                start_new_session=True,
            )

    def tell(self, *words: str) -> None:
        assert self.process.stdin is not None
        self.told, self.since = words, time.monotonic()
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()

    def answer(self, expect: int = 0) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (self.folder / "stderr").read_text()[-3000:]
        found = json.loads(line)
        print(f"{time.monotonic() - self.since:5.1f} s  {' '.join(self.told)}")
        assert found["code"] == expect, (found["out"][-3000:], found["said"][-3000:])
        self.passed = found["passed"]
        return str(found["out"])

    def rekappa(self, *words: str, expect: int = 0) -> Any:
        self.tell(*words, "--json")
        out = self.answer(expect)
        return json.loads(out) if out.strip() else None

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def files(self) -> list[str]:
        """What lies in this machine's folders, but for the app, its logs and code."""
        known = ("app/", "stderr", ".rekappa/logs/", ".rekappa/code/", "home/.cache/")
        found = [str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()]
        return [name for name in found if not name.startswith(known)]


@contextmanager
def driver(servers: Servers, name: str) -> Iterator[Driver]:
    made = Driver(servers, servers.folder / name)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.kill()


def processes() -> dict[int, str]:
    """The command line of every process on this machine, by number."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return found


def executors(servers: Servers) -> list[int]:
    """The processes that run tasks on the cluster."""
    found = []
    for number, words in processes().items():
        with suppress(OSError):
            if "CoarseGrainedExecutorBackend" in words:
                here = os.readlink(f"/proc/{number}/cwd")
                found += [number] if here.startswith(str(servers.folder)) else []
    return found


def kill_executor_at_the_gate(servers: Servers) -> None:
    """Wait until a task is at work in the app's function, then kill the executor that runs it, and open the gate."""
    wait_until(lambda: bool(at_work(servers)), "a task is at work")
    daemon = int(at_work(servers)[0].name.split("-")[1])
    parent = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    assert parent in executors(servers), "the task runs in an executor, not in the driver"
    os.kill(parent, signal.SIGKILL)
    wait_until(lambda: parent not in executors(servers), "the executor is gone")
    open_gate(servers)


def at_work(servers: Servers) -> list[Path]:
    """What tasks at the gate left: a file each, named after their processes."""
    return list(servers.gate.glob("at-*"))


def close_gate(servers: Servers) -> None:
    for left in at_work(servers):
        left.unlink()
    (servers.gate / "closed").touch()


def open_gate(servers: Servers) -> None:
    (servers.gate / "closed").unlink()


def events(first: int, last: int) -> list[Event]:
    made = []
    for minute in range(first, last):
        for user in (1, 2, 3):
            at = START + (minute + user / 10) * MINUTE
            made.append(Event(TOPIC, "local", user, at, at, {"user": user, "v": minute % 7 + user}))
    return made


def expected(until: int) -> Counter[tuple[datetime, int, int]]:
    """What the sink must hold of the windows that end by this minute, reckoned without Spark."""
    sums: Counter[tuple[datetime, int]] = Counter()
    for one in events(0, until):
        sums[START + (one.event_time - START) // (10 * MINUTE) * 10 * MINUTE, one.payload["user"]] += one.payload["v"]
    return Counter((at, user, total * FACTOR) for (at, user), total in sums.items())


def _opened(servers: Servers, name: str) -> Any:
    from pyiceberg.catalog import load_catalog

    where = {"s3.endpoint": servers.s3.endpoint, "s3.region": servers.s3.region}
    return load_catalog("lake", type="rest", uri=servers.catalog, **where).load_table(name)


def table(servers: Servers, name: str) -> Counter[tuple[datetime, int, int]]:
    """A table's rows, read by another engine."""
    rows = _opened(servers, name).scan().to_arrow().to_pylist()
    return Counter((row["at"].astimezone(UTC), row["user"], row["total"]) for row in rows)


def staged(servers: Servers, run: str) -> Counter[tuple[datetime, int, int]]:
    return table(servers, f"rekappa_staging.{run}__totals")


def lose_files(servers: Servers, minutes: int) -> None:
    """Production's files with windows that begin in the first minutes are gone, by somebody else's commit."""
    found = _opened(servers, "clustered.totals")
    before = (START + minutes * MINUTE).isoformat()
    with found.transaction() as change, change.update_snapshot().overwrite() as commit:
        for task in found.scan(row_filter=f"at < '{before}'").plan_files():
            commit.delete_data_file(task.file)


def served(servers: Servers) -> Counter[tuple[datetime, int, int]]:
    engine = create_engine(Address.parse(servers.store).url)
    with engine.connect() as db:
        rows = db.execute(text('SELECT at, "user", total FROM clustered')).all()
    engine.dispose()
    return Counter((at.astimezone(UTC), user, total) for at, user, total in rows)


def in_window(rows: Mapping[tuple[datetime, int, int], int], minutes: int) -> Counter[tuple[datetime, int, int]]:
    return Counter({row: count for row, count in rows.items() if row[0] < START + minutes * MINUTE})
