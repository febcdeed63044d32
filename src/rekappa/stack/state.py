"""What is known of the local stack: `stack.json` in its folder.

Ports and cluster id outlive the broker's process, so that a restart finds its data and keeps its address.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rekappa.errors import StackError
from rekappa.home import Home
from rekappa.stack.process import Process

VERSION = 1


@dataclass(frozen=True, slots=True)
class StackState:
    """A broker that is running."""

    bootstrap: str
    pid: int
    started: datetime


@dataclass(frozen=True, slots=True)
class Record:
    """The file's content. `process` is the broker last started, None after a clean stop."""

    port: int
    controller_port: int
    cluster: str
    process: Process | None = None
    started: datetime | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def running(self) -> StackState | None:
        if self.process is None or self.started is None or not self.process.alive():
            return None
        return StackState(self.bootstrap, self.process.pid, self.started)


def _file(home: Home) -> Path:
    return home.stack / "stack.json"


def read_record(home: Home) -> Record | None:
    """What the last `up` or `down` wrote, or None when the stack was never started here."""
    file = _file(home)
    try:
        data = json.loads(file.read_text())
        if data["version"] > VERSION:
            raise StackError(
                f"Cannot read {file}: it has version {data['version']}, this rekappa knows up to {VERSION}",
                hint="use the newer rekappa, or remove the folder to start with an empty stack",
            )
        process = data["process"]
        return Record(
            port=data["port"],
            controller_port=data["controller_port"],
            cluster=data["cluster"],
            process=Process(process["pid"], process["birth"]) if process else None,
            started=datetime.fromisoformat(process["started"]) if process else None,
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as wrong:
        raise StackError(
            f"Cannot read {file}: {wrong!r}", hint=f"remove {file.parent} to start with an empty stack"
        ) from wrong


def write_record(home: Home, record: Record) -> None:
    """Replace the file at once: a reader sees the old one or the new one."""
    process = record.process
    data = {
        "version": VERSION,
        "port": record.port,
        "controller_port": record.controller_port,
        "cluster": record.cluster,
        "process": {"pid": process.pid, "birth": process.birth, "started": record.started.isoformat()}
        if process and record.started
        else None,
    }
    file = _file(home)
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    fresh.write_text(json.dumps(data, indent=2) + "\n")
    fresh.replace(file)


def stack_state(home: Home) -> StackState | None:
    """The running broker of this project, or None. Cheap: reads one file and looks at one process."""
    record = read_record(home)
    return record.running() if record else None
