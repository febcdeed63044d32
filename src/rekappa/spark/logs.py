"""Spark's log files: every process that starts Spark writes one, and the old ones go when the next one starts.

A log grows to 20 MB, of which three more are kept (log4j2.properties). Files of processes that are still there stay.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from rekappa.stack.process import birth_of
from rekappa.store.host import this_host

KEEP_LOGS = timedelta(days=30)
KEEP_BYTES = 1024**3
_PID = re.compile(r"spark-(?P<host>.+)-(?P<pid>\d+)\.log(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log file; `age` since it was last written to. `in_use` says that its process is still there."""

    path: Path
    age: timedelta
    bytes: int
    in_use: bool


def surplus(files: Iterable[LogFile]) -> list[Path]:
    """Those to drop: older than `KEEP_LOGS`, and the oldest above `KEEP_BYTES` together. Those in use count."""
    gone: list[Path] = []
    total = 0
    for file in sorted(files, key=lambda one: (not one.in_use, one.age, one.path)):
        total += file.bytes
        if not file.in_use and (file.age > KEEP_LOGS or total > KEEP_BYTES):
            gone.append(file.path)
    return gone


def drop_old_logs(folder: Path) -> None:
    """Drop what is too old or too much. Several processes may do so at once."""
    host, found = this_host().name, []
    for path in folder.glob("spark-*.log*"):
        named = _PID.fullmatch(path.name)
        with suppress(FileNotFoundError):
            if named is not None and named["host"] == host:
                stat, alive = path.stat(), birth_of(int(named["pid"])) is not None
                found.append(LogFile(path, timedelta(seconds=time.time() - stat.st_mtime), stat.st_size, alive))
    for path in surplus(found):
        path.unlink(missing_ok=True)
