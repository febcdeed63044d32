"""The `rekappa` command kept warm: a process that runs one command after the other, so that Spark starts once.

A shell script calls `rekappa` as ever; the script that stands for it (`install`) hands its words, folder and streams to
the process (`python warm.py SOCKET`) and ends with the command's exit code. Commands that go on until stopped run in a
process of their own, as they would.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 60
CLIENT = """#!{python}
import json, os, socket, sys
words = sys.argv[1:]
if "run" in words[:2] and "--available-now" not in words:
    os.execv(sys.executable, [sys.executable, "-m", "rekappa.cli.main", *words])
with socket.socket(socket.AF_UNIX) as at:
    at.connect({address!r})
    socket.send_fds(at, [json.dumps([os.getcwd(), words]).encode()], [1, 2])
    sys.exit(int(at.recv(8) or 70))
"""


@contextmanager
def warm(folder: Path, environ: dict[str, str]) -> Iterator[dict[str, str]]:
    """The environment in which `rekappa` is the warm one; `folder` takes the socket and the script."""
    address, script = str(folder / "socket"), folder / "rekappa"
    script.write_text(CLIENT.format(python=sys.executable, address=address))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    process = subprocess.Popen([sys.executable, __file__, address], env=environ)
    try:
        deadline = time.monotonic() + PATIENCE
        while not Path(address).exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield {**environ, "PATH": f"{folder}{os.pathsep}{environ['PATH']}"}
    finally:
        process.terminate()
        process.wait(PATIENCE)


def serve(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        while True:
            asked, _ = listening.accept()
            with asked:
                told, streams, _, _ = socket.recv_fds(asked, 1 << 16, 2)
                folder, words = json.loads(told)
                asked.sendall(str(run(folder, words, streams)).encode())


def run(folder: str, words: list[str], streams: list[int]) -> int:
    """One command, in this process, with the caller's folder and streams."""
    from rekappa.cli.main import main

    kept = [os.dup(1), os.dup(2)]
    os.chdir(folder)
    for number, stream in enumerate(streams, start=1):
        os.dup2(stream, number)
        os.close(stream)
    try:
        main(words, prog_name="rekappa")
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, own in enumerate(kept, start=1):
            os.dup2(own, number)
            os.close(own)
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
