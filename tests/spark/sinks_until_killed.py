"""Writes one batch to every sink at once, tells how far each is, and waits to be killed.

No sink ever gets its whole batch: at `GATE` rows it waits for the end, however long the others take to begin.

python sinks_until_killed.py SERVERS.json HOME
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

from sink_rows import KILLED_CAP, KILLED_ROWS, KINDS, rows, sinks_config

from rekappa import tokens
from rekappa.home import Home
from rekappa.sinks.contract import BatchId
from rekappa.sinks.rate import rate_limited
from rekappa.sinks.registry import open_sink
from rekappa.spark.session import open_session

GATE = KILLED_ROWS // 4
BATCH = BatchId("killed-run", "query", 0)


class Gated(tokens._Metered):
    """Lets rows pass at the sink's rate up to the gate; those after it wait for ever."""

    def reserve(self, count: int) -> float:
        wait = super().reserve(count)
        return wait if self.total < GATE else 86_400.0


def main(servers: Path, home: Home) -> None:
    tokens._Metered = Gated  # type: ignore[misc]
    config = sinks_config(json.loads(servers.read_text()), hive=True)
    spark = open_session(config, "live", home)
    kinds = (*KINDS, "hive")

    def write(kind: str) -> None:
        sink = rate_limited(open_sink(f"{kind}_killed", config, home), KILLED_CAP)
        batch = rows(spark, 0, KILLED_ROWS)
        sink.prepare(spark, batch.schema)
        sink.write(batch, BATCH)

    # One that fails ends all: who waits for every sink would wait for ever.
    threading.excepthook = _end
    for kind in kinds:
        threading.Thread(target=write, args=(kind,), daemon=True).start()
    while True:
        print(json.dumps({kind: tokens.passed(f"sink {kind}_killed") for kind in kinds}), flush=True)
        time.sleep(0.2)


def _end(failed: threading.ExceptHookArgs) -> None:
    sys.__excepthook__(failed.exc_type, failed.exc_value or failed.exc_type(), failed.exc_traceback)
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Home(Path(sys.argv[2])))
