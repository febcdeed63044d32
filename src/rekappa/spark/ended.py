"""Whether Spark's own process, the JVM, is still there: without it every call fails, with words that say nothing."""

from __future__ import annotations

import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Any

PATIENCE = 2.0
"""Seconds between the end of a connection and that of the process: the system closes the one a moment earlier."""


@dataclass(frozen=True, slots=True)
class EndOfSpark:
    """A JVM that ended, and by which signal; None where it left by itself."""

    pid: int
    signal: signal.Signals | None

    def __str__(self) -> str:
        if self.signal is None:
            return f"Spark's process {self.pid} ended"
        return f"Spark's process {self.pid} was killed ({self.signal.name})"

    @property
    def for_memory(self) -> bool:
        """Whether it ended as the system ends processes when memory runs out."""
        return self.signal is signal.SIGKILL


def ended_jvm(patience: float = 0.0) -> EndOfSpark | None:
    """How the JVM that this process started ended, None if it runs or was never started.

    With `patience`, in seconds, one that is about to end is waited for.
    """
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:
        return None
    deadline = time.monotonic() + patience
    while (code := process.poll()) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    if code is None:
        return None
    # The JVM answers a signal that it takes itself with 128 and its number.
    number = -code if code < 0 else code - 128 if code > 128 else 0
    return EndOfSpark(process.pid, signal.Signals(number) if number in set(signal.Signals) else None)
