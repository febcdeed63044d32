"""Beyond one machine: workers that share no folder with the driver, an object store, a REST catalog, a team's store.

One story on one set of servers. A gate lets the test choose the moment of a kill: while it is closed, a task that comes
to the app's function says so and waits.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from project import wait_until
from servers.postgres import PostgresServer
from servers.rest_catalog import rest_catalog
from servers.s3 import S3Server, s3
from servers.spark_cluster import SparkCluster, spark_cluster
from sqlalchemy import create_engine, inspect, text
from storage_contract import keeps_the_contract

from rekappa.demo.events import Event
from rekappa.demo.produce import produce
from rekappa.produce.topics import create_topics
from rekappa.storage.root import parse_location
from rekappa.store.address import Address

pytestmark = pytest.mark.timeout(2400)

START = datetime(2026, 11, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TOPIC = "clustered_events"
CATALOG_SECRET = "catalog-hidden-from-all"
CODE = '''
import os
import time

from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from names import GATE
from rekappa import App

app = App("clustered")


def scaled(value):
    """Tells that it is at work, waits while the gate is closed, and uses what only the environment archive has."""
    from only_in_the_archive import FACTOR

    if os.path.exists(f"{GATE}/closed"):
        with open(f"{GATE}/at-{os.getppid()}-{os.getpid()}", "w"):
            pass
        while os.path.exists(f"{GATE}/closed"):
            time.sleep(0.05)
    return value * FACTOR


@app.job
def totals(events):
    scale = F.udf(scaled, LongType())
    timed = events.withColumn("scaled", scale("v")).withWatermark("event_ts", "5 minutes")
    grouped = timed.groupBy(F.window("event_ts", "10 minutes"), "user")
    return grouped.agg(F.sum("scaled").alias("total")).select(F.col("window.start").alias("at"), "user", "total")
'''
FACTOR = 3


@dataclass(frozen=True, slots=True)
class Servers:
    """What a team has: everything but the driver's machine."""

    folder: Path
    broker: str
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
            "clusters": {"main": {"bootstrap": self.broker}},
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
        }

    def secrets(self) -> dict[str, str]:
        return {"of S3": self.s3.secret, "of the catalog": CATALOG_SECRET, "of PostgreSQL": self.postgres.password}


@pytest.fixture(scope="module")
def servers(
    broker: str, postgres_server: PostgresServer, postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("cluster")
    for name in ("s3", "catalog", "gate", "history"):
        (folder / name).mkdir()
    _pack_environment(folder / "environment.tar.gz")
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        store = stack.enter_context(s3(folder / "s3"))
        for name, value in store.environ.items():
            patch.setenv(name, value)
        hadoop = parse_location(store.address("rekappa")).storage.hadoop()
        catalog = stack.enter_context(rest_catalog(folder / "catalog", f"s3a://{store.bucket}/warehouse", hadoop))
        cluster = stack.enter_context(spark_cluster(folder / "cluster"))
        made = Servers(folder, broker, store, catalog, cluster, postgres_server, f"{postgres_url}?schema=clustered")
        create_topics(broker, [TOPIC], 2)
        yield made


def _pack_environment(file: Path) -> None:
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

    def __post_init__(self) -> None:
        app = self.folder / "app"
        app.mkdir(parents=True)
        (self.folder / "home").mkdir()
        (app / "app.py").write_text(CODE)
        (app / "names.py").write_text(f"GATE = {str(self.servers.gate)!r}\n")
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
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()

    def answer(self, expect: int = 0) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (self.folder / "stderr").read_text()[-3000:]
        found = json.loads(line)
        assert found["code"] == expect, (found["out"][-3000:], found["said"][-3000:])
        return str(found["out"])

    def rekappa(self, *words: str, expect: int = 0) -> Any:
        self.tell(*words, "--json")
        out = self.answer(expect)
        return json.loads(out) if out.strip() else None

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

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
    waiting: list[Path] = []

    def some() -> bool:
        waiting[:] = servers.gate.glob("at-*")
        return bool(waiting)

    wait_until(some, "a task is at work")
    daemon = int(waiting[0].name.split("-")[1])
    parent = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    assert parent in executors(servers), "the task runs in an executor, not in the driver"
    os.kill(parent, signal.SIGKILL)
    wait_until(lambda: parent not in executors(servers), "the executor is gone")
    open_gate(servers)


def close_gate(servers: Servers) -> None:
    for left in servers.gate.glob("at-*"):
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


def table(servers: Servers, name: str) -> Counter[tuple[datetime, int, int]]:
    """A table's rows, read by another engine."""
    from pyiceberg.catalog import load_catalog

    found = load_catalog(
        "lake", type="rest", uri=servers.catalog, **{"s3.endpoint": servers.s3.endpoint, "s3.region": servers.s3.region}
    ).load_table(name)
    rows = found.scan().to_arrow().to_pylist()
    return Counter((row["at"].astimezone(UTC), row["user"], row["total"]) for row in rows)


def served(servers: Servers) -> Counter[tuple[datetime, int, int]]:
    engine = create_engine(Address.parse(servers.store).url)
    with engine.connect() as db:
        rows = db.execute(text('SELECT at, "user", total FROM clustered')).all()
    engine.dispose()
    return Counter((at.astimezone(UTC), user, total) for at, user, total in rows)


def in_window(rows: Mapping[tuple[datetime, int, int], int], minutes: int) -> Counter[tuple[datetime, int, int]]:
    return Counter({row: count for row, count in rows.items() if row[0] < START + minutes * MINUTE})


WINDOW = ("--start", "2026-11-01 00:00", "--end", "2026-11-01 01:00", "--sink", "totals")


def staged(servers: Servers, run: str) -> Counter[tuple[datetime, int, int]]:
    return table(servers, f"rekappa_staging.{run}__totals")


def leaks(servers: Servers, texts: Mapping[str, str]) -> list[str]:
    return [f"{name} in {where}" for name, secret in servers.secrets().items()
            for where, said in texts.items() if secret in said]  # fmt: skip


def told_by_spark(servers: Servers) -> dict[str, str]:
    """What Spark shows and writes of a running application, and what anybody on these machines can see."""
    found = {f"the command line of {number}": words for number, words in processes().items()}
    found |= {str(file.relative_to(servers.folder)): file.read_text(errors="replace")
              for file in servers.folder.glob("history/**/*") if file.is_file()}  # fmt: skip
    assert any("history" in name for name in found), "an event log was written"
    for file in servers.folder.glob("first/.rekappa/logs/*"):
        found[str(file)] = file.read_text(errors="replace")
    page = json.loads(requests.get(f"{servers.cluster.page}/json/", timeout=30).text)["activeapps"][0]["id"]
    address = next(port for port in range(4040, 4060) if _shows(port, page))
    for name in ("environment", "executors", "jobs", "sql?details=true&length=1000"):
        found[f"the UI's {name}"] = requests.get(
            f"http://127.0.0.1:{address}/api/v1/applications/{page}/{name}", timeout=60
        ).text
    assert "spark.sql.catalog.lake.s3.secret-access-key" in found["the UI's environment"], (
        "the setting is shown, masked"
    )
    return found


def _shows(port: int, app: str) -> bool:
    try:
        shown = requests.get(f"http://127.0.0.1:{port}/api/v1/applications", timeout=10).json()
    except (requests.RequestException, ValueError):
        return False
    return any(one["id"] == app for one in shown)


def run_store(servers: Servers) -> str:
    """All that the team's run store holds, as text."""
    address = Address.parse(servers.store)
    engine = create_engine(address.url)
    with engine.connect() as db:
        names = inspect(engine).get_table_names(schema=address.schema)
        assert "runs" in names
        rows = [
            str(tuple(row)) for name in names for row in db.execute(text(f'SELECT * FROM "{address.schema}"."{name}"'))
        ]
    engine.dispose()
    return "\n".join(rows)


def test_an_object_store_keeps_the_contract(servers: Servers) -> None:
    keeps_the_contract(parse_location(servers.s3.address("contract")))


def test_a_whole_life_on_a_cluster(servers: Servers) -> None:
    """The same results as reckoned without Spark, whoever is killed in between, and nothing kept beside the stores."""
    whole = expected(180)
    with driver(servers, "first") as first:
        produce(servers.broker, events(0, 90), prefixes=False)
        close_gate(servers)
        first.tell("run", "app", "--available-now", "--json")
        kill_executor_at_the_gate(servers)
        first.answer()
        produce(servers.broker, events(90, 180), prefixes=False)
        first.rekappa("run", "app", "--available-now")
        assert in_window(table(servers, "clustered.totals"), 60) == in_window(whole, 60)
        assert in_window(served(servers), 60) == in_window(whole, 60)
        assert leaks(servers, told_by_spark(servers)) == []
        first.rekappa("archive", "run", "app", "--available-now")
        assert first.rekappa("plan", "app", *WINDOW)["jobs"][0]["mode"] == "bulk"
        bulk = first.rekappa("backfill", "app", *WINDOW)["id"]
        close_gate(servers)
        first.tell("backfill", "app", *WINDOW, "--mode", "ordered", "--slice-span", "1h", "--json")
        kill_executor_at_the_gate(servers)
        ordered = json.loads(first.answer())["id"]
        exact = first.rekappa("backfill", "app", *WINDOW, "--mode", "exact")["id"]
        for run in (bulk, ordered, exact):
            assert staged(servers, run) == in_window(whole, 60), run
        assert first.rekappa("validate", ordered)["outcome"] == "passed"
        before = table(servers, "clustered.totals")
        first.rekappa("publish", ordered, "--yes")
        assert table(servers, "clustered.totals") == before
        first.rekappa("undo", ordered, "--yes")
        assert table(servers, "clustered.totals") == before
        # The driver dies in the middle of a backfill, and its machine with it.
        close_gate(servers)
        first.tell("backfill", "app", *WINDOW, "--mode", "ordered", "--slice-span", "1h", "--json")
        wait_until(lambda: any(servers.gate.glob("at-*")), "a task is at work")
        first.kill()
        open_gate(servers)
        assert first.files() == []
        (first.folder / "app").rename(first.folder / "unreachable")
    with driver(servers, "second") as second:
        died = second.rekappa("runs", "--app", "clustered")[0]["id"]
        assert died not in (bulk, ordered, exact)
        second.rekappa("resume", died)
        assert staged(servers, died) == in_window(whole, 60)
        produce(servers.broker, events(180, 240), prefixes=False)
        second.rekappa("run", "app", "--available-now")
        assert in_window(table(servers, "clustered.totals"), 210) == in_window(expected(240), 210)
        assert in_window(served(servers), 210) == in_window(expected(240), 210)
        assert second.files() == []
    assert leaks(servers, {"the run store": run_store(servers)}) == []
