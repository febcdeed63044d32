"""The local Kafka broker: one KRaft process under the project folder.

    state = up(home)        # running when this returns; a second call changes nothing
    status(home)            # the same state, or None
    down(home)              # stopped; data, ports and logs stay for the next `up`

Whatever ended the last broker (a clean stop, kill -9, a reboot), `up` starts from the data it left.
"""

from __future__ import annotations

import base64
import fcntl
import random
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rekappa.errors import StackError
from rekappa.home import Home
from rekappa.jvm.jars import jars
from rekappa.jvm.java import java
from rekappa.stack.process import Process, detach
from rekappa.stack.settings import log_properties, server_properties
from rekappa.stack.state import Record, StackState, read_record, stack_state, write_record

START_PATIENCE = timedelta(seconds=90)
RELEASE_PATIENCE = timedelta(seconds=2)
"""A process that was killed may be gone for a moment before its ports are."""
PORTS = range(20_000, 32_000)
STOP_PATIENCE = timedelta(seconds=20)
_JVM = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-Djava.awt.headless=true")


def up(home: Home) -> StackState:
    """Start the broker unless it runs. When this returns, clients can connect."""
    with _alone(home):
        record = read_record(home) or Record(port=0, controller_port=0, cluster=_cluster_id())
        running = record.running()
        if running and record.process and _still_serves(record.bootstrap, record.process, home.logs / "broker.log"):
            return running
        record = replace(record, process=None, started=None)
        port = _free_port(record.port)
        record = replace(record, port=port, controller_port=_free_port(record.controller_port, but=port))
        _configure(home, record)
        log = home.logs / "broker.log"
        process = detach([*_command(home), "kafka.Kafka", _properties(home)], home.logs / "broker.out")
        record = replace(record, process=process, started=datetime.now(UTC))
        write_record(home, record)
        try:
            _wait_until_ready(record.bootstrap, process, log)
        except BaseException:
            process.stop(STOP_PATIENCE)
            write_record(home, replace(record, process=None, started=None))
            raise
        return StackState(record.bootstrap, process.pid, record.started or datetime.now(UTC))


def down(home: Home) -> bool:
    """Stop the broker and wait for its end; data, ports and logs stay. Says whether one was running."""
    if not home.stack.is_dir():
        return False
    with _alone(home):
        record = read_record(home)
        if record is None:
            return False
        was_running = record.running() is not None
        if record.process and was_running:
            record.process.stop(STOP_PATIENCE)
        write_record(home, replace(record, process=None, started=None))
        return was_running


def status(home: Home) -> StackState | None:
    """The running broker, or None."""
    return stack_state(home)


@contextmanager
def _alone(home: Home) -> Iterator[None]:
    """One `up` or `down` at a time per project."""
    home.made().stack.mkdir(exist_ok=True)
    with (home.stack / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _properties(home: Home) -> Path:
    return home.stack / "server.properties"


def _command(home: Home) -> list[str | Path]:
    """How the JVM of the broker and its tools starts, up to the class to run."""
    folders = sorted({str(jar.parent / "*") for jar in jars("broker")})
    logging = f"-Dlog4j2.configurationFile={home.stack / 'log4j2.properties'}"
    return [java(), *_JVM, logging, "-cp", ":".join(folders)]


def _configure(home: Home, record: Record) -> None:
    """Write the configuration, and format the data folder if it was never formatted."""
    data = home.stack / "kafka"
    properties = _properties(home)
    home.logs.mkdir(parents=True, exist_ok=True)
    (home.logs / "broker.out").write_text("")
    (home.stack / "log4j2.properties").write_text(log_properties(home.logs / "broker.log"))
    properties.write_text(server_properties(record.port, record.controller_port, data))
    if (data / "meta.properties").exists():
        return
    # One argument: an id may begin with a dash.
    command = [*_command(home), "kafka.tools.StorageTool", "format", f"--cluster-id={record.cluster}", "-c", properties]
    formatted = subprocess.run(command, capture_output=True, text=True, check=False)
    if formatted.returncode:
        raise StackError(
            f"Cannot format the broker's data folder {data}: {(formatted.stderr or formatted.stdout).strip()}",
            hint=f"remove {home.stack} to start with an empty stack",
        )
    write_record(home, record)


def _cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _free_port(wanted: int, but: int = 0) -> int:
    """`wanted` if nobody has it, or else another; never `but`.

    From below the range that systems give to outgoing connections, so that it is still free at the next start.
    """
    deadline = time.monotonic() + RELEASE_PATIENCE.total_seconds()
    while wanted:
        if _is_free(wanted):
            return wanted
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    for port in random.sample(PORTS, 100):
        if port != but and _is_free(port):
            return port
    raise StackError(f"Cannot find a free port on 127.0.0.1 between {PORTS.start} and {PORTS.stop}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _wait_until_ready(bootstrap: str, process: Process, log: Path) -> None:
    """Return once the broker answers a client; refuse when it ends or takes too long."""
    deadline = time.monotonic() + START_PATIENCE.total_seconds()
    while process.alive():
        if _answers(bootstrap):
            return
        if time.monotonic() > deadline:
            raise StackError(
                f"Cannot start the broker: it did not answer on {bootstrap} within {START_PATIENCE.seconds} s",
                hint=f"its log is {log}",
            )
        time.sleep(0.1)
    lines = [line for file in (log.with_suffix(".out"), log) if file.exists() for line in _last_lines(file)]
    last = "\n".join(lines[-8:]) or "it wrote nothing"
    raise StackError(f"Cannot start the broker: it ended at once:\n{last}", hint=f"its log is {log}")


def _last_lines(file: Path) -> list[str]:
    return file.read_text(errors="replace").splitlines()[-8:]


def _still_serves(bootstrap: str, process: Process, log: Path) -> bool:
    """Whether a broker that was found alive can be used: also one whose `up` was ended before it was ready.
    One that is dying or stuck is ended."""
    if _accepts(bootstrap):
        return True
    try:
        _wait_until_ready(bootstrap, process, log)
    except StackError:
        process.stop(STOP_PATIENCE)
        return False
    return True


def _accepts(bootstrap: str) -> bool:
    host, _, port = bootstrap.partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def _answers(bootstrap: str) -> bool:
    if not _accepts(bootstrap):
        return False
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        return bool(AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=2).brokers)
    except KafkaException:
        return False
