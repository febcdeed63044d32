"""A process that rewinds, or resumes the rewind of, an app with all downstream of it, and is killed on its way.

    python rewind_until_killed.py FOLDER told|noted NUMBER PORT SECRET [PLAN]

It is killed when the step of that number begins, or when the step of that number is done and not yet noted. PLAN is a
file with the plan that is carried out; without it the open one is resumed. Spark is that of the process which started
this one, reached through its gateway: a start of its own would take longer than all else here. So nothing here may let
Spark call back.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any

from rekappa.config.bind import load_app
from rekappa.config.load import load
from rekappa.home import Home
from rekappa.recovery.live_app import LiveApp
from rekappa.recovery.rewind import DONE, resume, rewind
from rekappa.runs.live import live_session
from rekappa.store.record import Run
from rekappa.store.runs import RunStore


def attach(port: str, secret: str) -> None:
    """Make the Spark behind this gateway the one of this process."""
    os.environ |= {"PYSPARK_GATEWAY_PORT": port, "PYSPARK_GATEWAY_SECRET": secret}
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    there = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    context = gateway.jvm.org.apache.spark.api.java.JavaSparkContext(there)
    SparkContext(conf=SparkConf(_jvm=gateway.jvm, _jconf=context.getConf()), gateway=gateway, jsc=context)


def killer(number: int) -> Any:
    """To be called again and again; the call of this number is the last that this process does."""
    calls: list[object] = []

    def count(*told: object) -> None:
        calls.append(told)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return count


def main(folder: str, when: str, number: int, plan: Path | None) -> None:
    home, loaded = Home.locate(), load(folder)
    live = LiveApp(live_session(loaded, home), home, loaded, load_app(loaded))
    kill, ignore, update = killer(number), lambda text: None, RunStore.update

    def noting(self: RunStore, run_id: str, **changes: Any) -> Run:
        if when == "noted" and DONE in changes.get("progress", {}):
            kill()
        return update(self, run_id, **changes)

    RunStore.update = noting  # type: ignore[method-assign]
    tell = kill if when == "told" else ignore
    if plan is None:
        resume(live, tell=tell)
    else:
        rewind(live, pickle.loads(plan.read_bytes()), tell=tell)


if __name__ == "__main__":
    attach(sys.argv[4], sys.argv[5])
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[6]) if len(sys.argv) > 6 else None)
