"""Starting a server process, waiting until it answers, ending it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


def free_port(low: int = 0, high: int = 0) -> int:
    """A port of the loopback address that nobody listens on, within [low, high) if given."""
    for port in range(low, high) if low else (0,):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise RuntimeError(f"no free port in {low}..{high}")


@contextmanager
def running(
    command: Sequence[str | Path],
    log: Path,
    answers: Callable[[], bool],
    *,
    seconds: float = 120,
    environ: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """The server, from when it answers until the block ends. Fails with the end of its log.

    `environ` is all that it knows of the environment; ours, if None.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            start_new_session=True,
            env=environ,
        )
    try:
        deadline = time.monotonic() + seconds
        while not answers():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} did not start:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.2)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
