"""Writes one slow batch to every sink at once, tells how far each is, and waits to be killed.

python sinks_until_killed.py SERVERS.json HOME
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from sink_rows import KILLED_CAP, KILLED_ROWS, KINDS, rows, sinks_config

from rekappa.home import Home
from rekappa.sinks.contract import BatchId
from rekappa.sinks.rate import rate_limited
from rekappa.sinks.registry import open_sink
from rekappa.spark.session import open_session
from rekappa.tokens import passed

BATCH = BatchId("killed-run", "query", 0)


def main(servers: Path, home: Home) -> None:
    config = sinks_config(json.loads(servers.read_text()), hive=True)
    spark = open_session(config, "live", home)
    kinds = (*KINDS, "hive")

    def write(kind: str) -> None:
        sink = rate_limited(open_sink(f"{kind}_killed", config, home), KILLED_CAP)
        batch = rows(spark, 0, KILLED_ROWS)
        sink.prepare(spark, batch.schema)
        sink.write(batch, BATCH)

    for kind in kinds:
        threading.Thread(target=write, args=(kind,), daemon=True).start()
    while True:
        print(json.dumps({kind: passed(f"sink {kind}_killed") for kind in kinds}), flush=True)
        time.sleep(0.2)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Home(Path(sys.argv[2])))
