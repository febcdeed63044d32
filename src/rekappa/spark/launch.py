"""Starting the JVM quietly: its settings neither on the command line nor on disk, its log in a file."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rekappa.home import Home
from rekappa.spark.classes import sharing
from rekappa.spark.logs import drop_old_logs
from rekappa.store.host import this_host

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_KEEPING = "-XX:ArchiveClassesAtExit"
"""With this the JVM makes an archive of classes, and can't use one."""
_CLASS_PATH = "SPARK_DIST_CLASSPATH"
"""Spark's launcher puts it behind Spark's own jars."""
LOCAL_FILES = {
    "spark.hadoop.fs.file.impl": "rekappa.LocalFiles",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "rekappa.LocalFiles$Context",
}
"""Hadoop's own starts a process for each file that it makes or renames: nearly half the work of a small micro-batch."""
_LOG_CONFIG = Path(__file__).with_name("log4j2.properties")


def spark_log(home: Home) -> Path:
    """Where this process's Spark writes its log; its name is in the record of the run, which other machines read."""
    return home.logs / f"spark-{this_host().name}-{os.getpid()}.log"


def local_defaults() -> dict[str, str]:
    """What a single machine needs: loopback only, and a fair share of its memory."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    gigabytes = min(8, max(1, int(memory * 0.4) >> 30))
    return {
        "spark.driver.memory": f"{gigabytes}g",
        "spark.driver.host": "127.0.0.1",
        # Only where workers are sure to have this package: on this machine.
        "spark.python.daemon.module": "rekappa.spark.workers",
    }


def _not_by_py4j(record: logging.LogRecord) -> bool:
    """py4j says through the root logger, with a traceback, that the JVM is gone, which is told in words elsewhere."""
    return "py4j" not in Path(record.pathname).parts


@contextmanager
def launching(settings: Mapping[str, str], home: Home, class_path: Sequence[Path] = ()) -> Iterator[None]:
    """Let the JVM that starts inside take these settings from a file that only it and this process can see, and have
    these jars behind Spark's own on its class path.

    PySpark would write the settings on the command line, where every user of the machine can read passwords. Jars given
    as `spark.jars` would be copied, and their classes loaded one by one at every start.
    """
    home.made().logs.mkdir(exist_ok=True)
    drop_old_logs(home.logs)
    # PySpark repeats each error as a page of JSON on stderr before it raises it.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).disabled = True
    # The bridge to the JVM tells of every lost connection by a traceback; that the JVM is gone is said once, in words.
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(_not_by_py4j)
    log_options = f'-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()} "-Drekappa.log={spark_log(home)}"'
    options = (
        settings.get(JAVA_OPTIONS, ""),
        log_options,
        "" if _KEEPING in settings.get(JAVA_OPTIONS, "") else sharing(),
    )
    given = {**settings, JAVA_OPTIONS: " ".join(one for one in options if one)}
    text = "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in given.items())
    path = [*map(str, class_path), *filter(None, [os.environ.get(_CLASS_PATH)])]
    with _passed_on(text) as name, _outputs_into(spark_log(home)):
        submit = {"PYSPARK_SUBMIT_ARGS": f"--properties-file {name} pyspark-shell"}
        with _environment(submit | ({_CLASS_PATH: os.pathsep.join(path)} if path else {})):
            yield


def start_context(master: str, name: str) -> None:
    """Start the JVM and Spark's context in it, as a session would; what the session will need is made ready meanwhile,
    where our own classes are on the JVM's class path."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    ahead = gateway.jvm.rekappa.Ahead.begin()
    SparkContext(conf=SparkConf().setMaster(master).setAppName(name), gateway=gateway)
    ahead.join()


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set these variables inside the `with`."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@contextmanager
def _passed_on(text: str) -> Iterator[str]:
    """A path under which processes that we start can read the text, as often as they like, inside the `with`.

    On Linux it lies in memory and goes with this process, however that ends. Elsewhere it is a file that only its owner
    can read, and that a kill during the start leaves behind.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("rekappa")
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            # Not /dev/fd: PySpark starts the JVM with our descriptors closed. To open this is to open the file anew.
            yield f"/proc/{os.getpid()}/fd/{descriptor}"
        return
    with tempfile.NamedTemporaryFile("w", prefix="rekappa-", suffix=".properties") as kept:
        kept.write(text)
        kept.flush()
        yield kept.name


def _escaped(text: str) -> str:
    """As java.util.Properties reads it back."""
    special = {
        "\\": "\\\\",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "=": "\\=",
        ":": "\\:",
        "#": "\\#",
        "!": "\\!",
        " ": "\\ ",
    }
    return "".join(special.get(char, char) for char in text)


@contextmanager
def _outputs_into(log: Path) -> Iterator[None]:
    """The JVM inherits our stdout and stderr for life: one is for data, and what it prints is noise to a person."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
        with log.open("ab") as file:
            for number in kept:
                os.dup2(file.fileno(), number)
            yield
    finally:
        for number, descriptor in kept.items():
            os.dup2(descriptor, number)
            os.close(descriptor)
