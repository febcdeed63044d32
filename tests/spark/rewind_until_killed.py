"""A process that rewinds an app with all downstream of it, and is killed when the step of a number begins.

python rewind_until_killed.py FOLDER BATCH STEP
"""

from __future__ import annotations

import os
import signal
import sys

from rekappa.config.bind import load_app
from rekappa.config.load import load
from rekappa.home import Home
from rekappa.recovery.choose import ToBatch
from rekappa.recovery.live_app import LiveApp
from rekappa.recovery.rewind import plan_rewind, rewind
from rekappa.runs.live import live_session


def main(folder: str, batch: int, step: int) -> None:
    home, loaded = Home.locate(), load(folder)
    live = LiveApp(live_session(loaded, home), home, loaded, load_app(loaded))
    plan = plan_rewind(live, ToBatch(batch), cascade=True)
    begun: list[str] = []

    def kill(text: str) -> None:
        begun.append(text)
        if len(begun) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    rewind(live, plan, tell=kill)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
