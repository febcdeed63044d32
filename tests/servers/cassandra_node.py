"""A single Cassandra node with small memory; its two configuration files are in `cassandra/`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rekappa.jvm.jars import resolve
from rekappa.jvm.java import java
from servers.process import free_port, listens, running

HERE = Path(__file__).parent
CONFS = ("cassandra", "opensearch")


@contextmanager
def cassandra(folder: Path) -> Iterator[int]:
    """The node's port."""
    jars = resolve(HERE / "ivy.xml", CONFS)["cassandra"]
    conf = folder / "conf"
    conf.mkdir(parents=True)
    ports = {name: free_port() for name in ("NATIVE", "STORAGE", "SSL", "JMX")}
    for file in (HERE / "cassandra").iterdir():
        text = file.read_text().replace("DIR", str(folder))
        for name, port in ports.items():
            text = text.replace(f"{name}_PORT", str(port))
        (conf / file.name).write_text(text)
    command: list[str | Path] = [java(), f"@{conf / 'jvm17.options'}", "-cp", ":".join(str(jar) for jar in jars)]
    try:
        with running(
            [*command, "org.apache.cassandra.service.CassandraDaemon"],
            folder / "cassandra.log",
            lambda: listens(ports["NATIVE"]),
        ):
            yield ports["NATIVE"]
    finally:
        shutil.rmtree(folder / "data", ignore_errors=True)
