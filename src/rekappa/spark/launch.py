"""Starting the JVM quietly: its settings neither on the command line nor on disk, its log in a file."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekappa.home import Home
from rekappa.spark.classes import sharing
from rekappa.spark.direct import CLASS_PATH, JAVA_OPTIONS, Jvm, JvmOrder, direct, environment
from rekappa.spark.logs import drop_old_logs
from rekappa.store.host import this_host

_KEEPING = "-XX:ArchiveClassesAtExit"
"""With this the JVM makes an archive of classes, and can't use one."""
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


@dataclass(frozen=True, slots=True)
class Launch:
    """How a session's JVM is to be started: with which settings, and which jars behind Spark's own on its class path.
    Jars given as `spark.jars` would be copied, and their classes loaded one by one at every start."""

    settings: Mapping[str, str]
    home: Home
    class_path: Sequence[Path] = ()

    def direct(self) -> JvmOrder | None:
        """The order by which we start it ourselves; None where Spark's scripts must."""
        return direct(self.settings, self._java_options(), spark_log(self.home), self.class_path)

    def for_scripts(self) -> dict[str, str]:
        """The settings for Spark's scripts, which put the JVM's command line together."""
        options = [self.settings.get(JAVA_OPTIONS, ""), *(f'"{one}"' for one in self._java_options())]
        return {**self.settings, JAVA_OPTIONS: " ".join(filter(None, options))}

    def _java_options(self) -> list[str]:
        log = [f"-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()}", f"-Drekappa.log={spark_log(self.home)}"]
        return [*log, *([] if _KEEPING in self.settings.get(JAVA_OPTIONS, "") else sharing())]


_begun: list[Jvm] = []
"""The JVM that was started before its session is asked for, if any."""


@contextmanager
def begun(launch: Launch) -> Iterator[None]:
    """Let the JVM start while what is inside is done; the session that is opened next with such settings takes it. It
    is ended if what is inside is refused."""
    _quiet(launch.home)
    order = launch.direct()
    if order is None:
        yield
        return
    _begun.append(Jvm(order))
    try:
        yield
    except BaseException:
        _end_begun()
        raise


def start_context(launch: Launch, master: str, name: str) -> bool:
    """Start the JVM and Spark's context in it, as a session would; what the session will need is made ready meanwhile.
    False where that is left to Spark's scripts: nothing has been started then."""
    from pyspark import SparkConf, SparkContext

    order = launch.direct()
    if order is None:
        return False
    _quiet(launch.home)
    # One process speaks to one JVM: after a session was stopped the next one is made in the same.
    there: Any = SparkContext._gateway
    gateway = there or _taken(order).gateway()
    jvm = gateway.jvm
    ahead = jvm.rekappa.Ahead.begin()
    own = {"spark.master": master, "spark.app.name": name, "spark.submit.deployMode": "client"}
    # Where Spark's own code, and Hadoop's, looks for settings that it is not given.
    properties = jvm.java.lang.System.getProperties()
    for key in [key for key in properties.stringPropertyNames() if key.startswith("spark.")] if there else ():
        properties.remove(key)
    properties.load(jvm.java.io.StringReader(_written({**launch.settings, **own})))
    SparkContext(conf=SparkConf(_jvm=jvm), gateway=gateway)
    ahead.join()
    return True


def _taken(order: JvmOrder) -> Jvm:
    """The JVM that has been begun if it was ordered just so, or else a new one."""
    if _begun and _begun[-1].order == order:
        return _begun.pop()
    _end_begun()
    return Jvm(order)


def _end_begun() -> None:
    while _begun:
        _begun.pop().end()


def _quiet(home: Home) -> None:
    """Keep what the JVM and PySpark say off the terminal."""
    home.made().logs.mkdir(exist_ok=True)
    drop_old_logs(home.logs)
    # PySpark repeats each error as a page of JSON on stderr before it raises it.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).disabled = True
    # The bridge to the JVM tells of every lost connection by a traceback; that the JVM is gone is said once, in words.
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(_not_by_py4j)


@contextmanager
def launching(launch: Launch) -> Iterator[None]:
    """Let the JVM that Spark's scripts start inside take these settings from a file that only it and this process can
    see: PySpark would write them on the command line, where every user of the machine can read passwords."""
    _quiet(launch.home)
    path = [*map(str, launch.class_path), *filter(None, [os.environ.get(CLASS_PATH)])]
    with _passed_on(_written(launch.for_scripts())) as name, _outputs_into(spark_log(launch.home)):
        submit = {"PYSPARK_SUBMIT_ARGS": f"--properties-file {name} pyspark-shell"}
        with environment(submit | ({CLASS_PATH: os.pathsep.join(path)} if path else {})):
            yield


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


def _written(settings: Mapping[str, str]) -> str:
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())


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
