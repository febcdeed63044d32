"""A schema registry (Apicurio, in memory), and what a producer asks of it."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from rekappa.jvm.jars import resolve
from rekappa.jvm.java import java
from servers.process import free_port, running

HERE = Path(__file__).parent


@dataclass(frozen=True)
class RegistryServer:
    url: str

    def register(self, subject: str, schema: str, kind: str, references: Sequence[dict[str, Any]] = ()) -> int:
        """A new version of the subject; answers the schema's id."""
        body: dict[str, Any] = {"schema": schema, "schemaType": kind, "references": list(references)}
        answer = requests.post(f"{self.url}/subjects/{subject}/versions", json=body, timeout=30)
        assert answer.ok, answer.text
        return int(answer.json()["id"])

    def lookups(self) -> int:
        """How often it was asked for a schema by its id, by its own count."""
        metrics = requests.get(self.url.partition("/apis")[0] + "/metrics", timeout=30).text
        found = re.findall(r'rest_requests_count_total\{[^}]*path="\S*/schemas/ids/\{id\}"[^}]*\} ([\d.]+)', metrics)
        return round(sum(float(count) for count in found))


@contextmanager
def registry(folder: Path) -> Iterator[RegistryServer]:
    (archive,) = resolve(HERE / "registry.xml", ("registry",), ("tar.gz",))["registry"]
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (jar,) = folder.glob("apicurio-registry-app-*-runner.jar")
    port = free_port()
    server = RegistryServer(f"http://127.0.0.1:{port}/apis/ccompat/v7")

    def answers() -> bool:
        try:
            return requests.get(f"{server.url}/subjects", timeout=2).ok
        except requests.RequestException:
            return False

    command: list[str | Path] = [java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    settings = {"host": "127.0.0.1", "port": str(port)}
    command += [f"-Dquarkus.http.{name}={value}" for name, value in settings.items()]
    with running([*command, "-jar", jar], folder / "registry.log", answers):
        yield server
