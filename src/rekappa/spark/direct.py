"""Spark's JVM for a session on this machine, started by ourselves.

Spark's scripts start a JVM that works out how to start the JVM, and that one sorts out what a cluster would need before
it answers: a second that every command would wait. What they would have to look at (a user's own Spark, jars to fetch,
Kerberos) is left to them: `direct` then answers None.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekappa.errors import SetupError
from rekappa.jvm.java import java
from rekappa.jvm.pyspark_jars import pyspark_folder

MEMORY, JAVA_OPTIONS = "spark.driver.memory", "spark.driver.extraJavaOptions"
CLASS_PATH = "SPARK_DIST_CLASSPATH"
"""The environment's own addition to Spark's class path."""
_FOR_SCRIPTS_ENV = (
    *("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS", "SPARK_PREPEND_CLASSES", "SPARK_TESTING"),
    *("HADOOP_CONF_DIR", "YARN_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT"),
)
_FOR_SCRIPTS = (
    *("spark.jars", "spark.submit.", "spark.files", "spark.archives", "spark.kerberos.", "spark.yarn.", "spark.remote"),
    *("spark.driver.extraClassPath", "spark.driver.extraLibraryPath", "spark.driver.userClassPathFirst"),
    *("spark.driver.defaultJavaOptions", "spark.driver.libraryPath", "spark.pyspark.", "spark.api.mode"),
)
_SERVER = "org.apache.spark.api.python.PythonGatewayServer"
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
MODULES = (
    *("-XX:+IgnoreUnrecognizedVMOptions", "--add-modules=jdk.incubator.vector"),
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED),
    *("--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED", "-Djdk.reflect.useDirectMethodHandle=false"),
    *("-Dio.netty.tryReflectionSetAccessible=true", "-Dio.netty.allocator.type=pooled"),
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    *("--enable-native-access=ALL-UNNAMED", "-Dderby.connection.requireAuthentication=false"),
)
"""What this Spark asks of Java. `tests/spark/test_private.py` compares it with what Spark's launcher says."""
_LOOK, _PATIENCE = 0.005, 600.0


@dataclass(frozen=True, slots=True)
class JvmOrder:
    """How a JVM is started. No setting of the session is in it: those are told to the JVM once it answers, where nobody
    else sees them."""

    command: tuple[str, ...]
    log: Path


def direct(
    settings: Mapping[str, str], options: Sequence[str], log: Path, class_path: Sequence[Path]
) -> JvmOrder | None:
    """The order for these settings, with Java's `options` before those of the settings; None where Spark's own scripts
    must start it."""
    if os.name != "posix" or any(os.environ.get(name) for name in _FOR_SCRIPTS_ENV):
        return None
    spark = pyspark_folder()
    if (spark / "conf").exists() or any(key.startswith(_FOR_SCRIPTS) for key in settings):
        return None
    # Spark has this one first, for the order of its loggers.
    first = sorted((spark / "jars").glob("slf4j-api-*.jar"))
    path = [*map(str, first), f"{spark}/jars/*", *map(str, class_path), *filter(None, [os.environ.get(CLASS_PATH)])]
    own = [*shlex.split(settings.get(JAVA_OPTIONS, "")), *options]
    memory = settings.get(MEMORY, "1g")
    return JvmOrder((str(java()), "-cp", os.pathsep.join(path), f"-Xmx{memory}", *own, *MODULES, _SERVER), log)


class Jvm:
    """A JVM that is starting, or has started."""

    def __init__(self, order: JvmOrder) -> None:
        self.order = order
        # Only the owner can look into it: it is told there by which word the JVM is spoken to.
        self._folder = Path(tempfile.mkdtemp(prefix="rekappa-"))
        self._told = self._folder / "connection"
        environment = {
            **os.environ,
            "SPARK_HOME": str(pyspark_folder()),
            "SPARK_CONNECT_MODE": "0",
            "PYTHONHASHSEED": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._told),
        }
        with order.log.open("ab") as log:
            # It ends when its stdin does, however this process ends. Ctrl-C is for this process alone.
            self.process = subprocess.Popen(
                order.command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                preexec_fn=_deaf_to_ctrl_c,
            )

    def gateway(self) -> Any:
        """The connection to it, as PySpark makes it, once it answers."""
        from pyspark.java_gateway import launch_gateway

        try:
            port, secret = self._answer()
        except BaseException:
            self.end()
            raise
        shutil.rmtree(self._folder, ignore_errors=True)
        with environment({"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}):
            gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
        gateway.proc = self.process
        return gateway

    def end(self) -> None:
        """End it: nobody will speak to it."""
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answer(self) -> tuple[int, str]:
        """The port and the word that the JVM has written down. The file is put in place whole."""
        deadline = time.monotonic() + _PATIENCE
        while not self._told.is_file():
            code = self.process.poll()
            if code is not None or time.monotonic() > deadline:
                why = f"it ended with code {code}" if code is not None else f"it did not answer in {_PATIENCE:.0f} s"
                raise SetupError(f"Cannot start Spark's JVM: {why}", hint=f"What it said is in {self.order.log}.")
            time.sleep(_LOOK)
        port, length, *_ = struct.unpack_from("!ii", told := self._told.read_bytes())
        return port, told[8 : 8 + length].decode()


def _deaf_to_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
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
