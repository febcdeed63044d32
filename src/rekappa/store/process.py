"""Telling whether the process that ran a run is still that process."""

from __future__ import annotations

import os
from pathlib import Path


def fingerprint(pid: int) -> str | None:
    """What distinguishes this process from a later one with the same number; None if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
        return _without_proc(pid)
    except ProcessLookupError:
        return None
    state, started = fields[0], fields[19]
    return None if state == "Z" else started


def _without_proc(pid: int) -> str | None:
    """On systems without /proc a pid is all there is to go by."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return str(pid)


def alive(pid: int | None, process: str | None) -> bool:
    return pid is not None and process is not None and fingerprint(pid) == process
