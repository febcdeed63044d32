"""A user's project for tests: an app folder of its own, and the `rekappa` command run in it as a user would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rekappa.config.bind import load_app
from rekappa.config.load import Loaded, load
from rekappa.demo.events import Event
from rekappa.demo.produce import produce
from rekappa.home import Home
from rekappa.produce.topics import create_topics
from rekappa.runs.live import run_live
from rekappa.store.record import Run

COMMAND = ("-m", "rekappa.cli.main")
PATIENCE = 600
"""Seconds until a wait is given up: never a measure of speed, only the end of a hang."""


def wait_until(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"gave up waiting until {what}"
        time.sleep(0.05)


@dataclass(frozen=True)
class Project:
    """An app's folder and the project folder it works in."""

    folder: Path
    home: Home
    broker: str

    @classmethod
    def make(cls, folder: Path, home: Home, broker: str, code: str, config: str) -> Self:
        folder.mkdir(parents=True)
        (folder / "app.py").write_text(code)
        (folder / "rekappa.yaml").write_text(config)
        return cls(folder, home, broker)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def errors(self) -> Path:
        """What the commands wrote to stderr: beside the app's folder, which holds its code alone."""
        return self.folder.with_name(f"{self.name}-stderr.txt")

    @property
    def loaded(self) -> Loaded:
        return load(self.folder)

    def send(self, events: Iterable[Event], *, prefixes: bool = False) -> None:
        wanted = list(events)
        create_topics(self.broker, {f"{e.region}.{e.topic}" if prefixes else e.topic for e in wanted})
        produce(self.broker, wanted, prefixes=prefixes)

    def start(self, *arguments: str, command: Sequence[str] = COMMAND) -> subprocess.Popen[str]:
        """The command in a process of its own; stderr is kept beside the app."""
        environ = {**os.environ, "REKAPPA_HOME": str(self.home.root)}
        with self.errors.open("a") as errors:
            return subprocess.Popen(
                [sys.executable, *command, *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environ,
                cwd=self.folder,
            )

    def rekappa(self, *arguments: str, expect: int = 0) -> str:
        """Run the command to its end and answer its stdout."""
        process = self.start(*arguments)
        out, _ = process.communicate(timeout=PATIENCE * 2)
        assert process.returncode == expect, (out, self.errors.read_text()[-4000:])
        return out

    def json(self, *arguments: str, expect: int = 0) -> Any:
        return json.loads(self.rekappa(*arguments, "--json", expect=expect))

    def live(self, **options: Any) -> Run:
        """Catch up with Kafka in this process, on the tests' own Spark."""
        loaded = self.loaded
        return run_live(loaded, load_app(loaded), self.home, available_now=True, **options)
