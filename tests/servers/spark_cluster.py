"""A Spark standalone cluster of two workers, each with folders, a working directory and a HOME of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

from rekappa.jvm.java import java
from servers.process import free_port, running
from servers.rest_catalog import pyspark_jars

MEMORY = "512m"


@dataclass(frozen=True, slots=True)
class SparkCluster:
    master: str
    page: str
    workers: tuple[Path, ...]

    def alive(self) -> int:
        """How many workers have told the master that they are there."""
        try:
            return int(requests.get(f"{self.page}/json/", timeout=5).json()["aliveworkers"])
        except (requests.RequestException, ValueError):
            return 0


@contextmanager
def spark_cluster(folder: Path, workers: int = 2) -> Iterator[SparkCluster]:
    port, page = free_port(), free_port()
    cluster = SparkCluster(
        f"spark://127.0.0.1:{port}",
        f"http://127.0.0.1:{page}",
        tuple(folder / f"machine-{number}" for number in range(1, workers + 1)),
    )
    command: list[str | Path] = [java(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-cp", f"{pyspark_jars()}/*"]
    with ExitStack() as stack:
        stack.enter_context(
            running(
                [*command, "org.apache.spark.deploy.master.Master", "-h", "127.0.0.1", "-p", str(port),
                 "--webui-port", str(page)],
                _made(folder / "master") / "log",
                lambda: _answers(cluster.page),
                seconds=300,
                environ=_environ(folder / "master"),
            )
        )  # fmt: skip
        for number, own in enumerate(cluster.workers, 1):
            made = _made(own)
            stack.enter_context(
                running(
                    [*command, "org.apache.spark.deploy.worker.Worker", "-h", "127.0.0.1", "-c", "1", "-m", "1g",
                     "-d", made / "work", "--webui-port", str(free_port()), cluster.master],
                    made / "log",
                    lambda number=number: cluster.alive() >= number,  # type: ignore[misc]
                    seconds=300,
                    environ=_environ(made),
                )
            )  # fmt: skip
        yield cluster


def _made(folder: Path) -> Path:
    for name in ("work", "local", "home", "tmp"):
        (folder / name).mkdir(parents=True)
    return folder


def _environ(folder: Path) -> dict[str, str]:
    """What such a machine knows: nothing of the driver's project, of its Python path or of its keys."""
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG") if name in os.environ}
    own = {"HOME": folder / "home", "TMPDIR": folder / "tmp", "SPARK_LOCAL_DIRS": folder / "local"}
    return {**kept, **{name: str(path) for name, path in own.items()}, "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(pyspark_jars().parent), "SPARK_SCALA_VERSION": "2.13"}  # fmt: skip


def _answers(page: str) -> bool:
    try:
        return requests.get(f"{page}/json/", timeout=5).ok
    except requests.RequestException:
        return False
