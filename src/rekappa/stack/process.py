"""Processes that outlive the command that started them.

A pid alone does not say who it is: the system hands out the same number again. A process is therefore
remembered with its birth, and is only ever signalled when both still fit.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

_POLL = 0.05


@dataclass(frozen=True, slots=True)
class Process:
    """One process of this machine, told apart from any later one that gets the same pid."""

    pid: int
    birth: str

    def alive(self) -> bool:
        return birth_of(self.pid) == self.birth

    def stop(self, patience: timedelta) -> bool:
        """Ask it to end, and after `patience` end it. Says whether it ended by itself."""
        if self.ended(patience):
            return True
        self._signal(signal.SIGKILL)
        self._gone_within(timedelta(seconds=10))
        return False

    def ended(self, patience: timedelta) -> bool:
        """Ask it to end; says whether it did within `patience`."""
        self._signal(signal.SIGTERM)
        return self._gone_within(patience)

    def _signal(self, number: signal.Signals) -> None:
        if self.alive():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def _gone_within(self, patience: timedelta) -> bool:
        deadline = time.monotonic() + patience.total_seconds()
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL)
        return True


def birth_of(pid: int) -> str | None:
    """What tells this process from an earlier or later one with its pid; None when there is no such live process."""
    stat = Path(f"/proc/{pid}/stat")
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return listed.stdout.strip() or None
    try:
        # The command in parentheses may hold spaces: everything after the last one is fixed.
        fields = stat.read_text().rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in "ZX":
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{fields[19]}"


def detach(command: Sequence[str | Path], log: Path, environ: Mapping[str, str] | None = None) -> Process:
    """Start a command in a session of its own, both outputs appended to `log`; it is nobody's child afterwards."""
    line = shlex.join(str(word) for word in command)
    started = subprocess.run(
        ["/bin/sh", "-c", f"{line} </dev/null >>{shlex.quote(str(log))} 2>&1 & echo $!"],
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
        env=None if environ is None else dict(environ),
    )
    pid = int(started.stdout)
    return Process(pid, birth_of(pid) or "")
