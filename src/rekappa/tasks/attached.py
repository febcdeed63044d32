"""A command that ends with whoever asked: `python -m rekappa.tasks.attached WORDS`.

Its stdin is a pipe to which nobody writes and of which the asker alone holds the other end. It is closed when the asker
has gone, however it went; then the command ends at once, whatever it is at. For commands that change nothing.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading

MODULE = "rekappa.cli.main"


def end_with_the_asker() -> None:
    """Wait in a thread for the end of stdin."""
    asker = os.dup(0)
    threading.Thread(target=_wait, args=(asker,), daemon=True, name="asker").start()


def _wait(asker: int) -> None:
    while os.read(asker, 1):
        continue
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    end_with_the_asker()
    sys.argv[0] = MODULE
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
