"""A replay in a process of its own, to be killed: python replay_victim.py HOME PLAN CHECKPOINT TABLE OUT.

Writes each batch as a Parquet folder named after it, slowly enough that a killer can choose its moment. The folder
of a batch is replaced as a whole, so that a repeated batch changes nothing, as every sink must promise.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from archives import PAYLOAD

from rekappa.config.model import AppConfig
from rekappa.home import Home
from rekappa.replay.ordered import ArchiveSource, run_slices
from rekappa.spark.session import open_session
from rekappa.storage.location import Location


def main(home: str, plan: str, checkpoint: str, table: str, out: str) -> None:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    config = AppConfig.model_validate(
        {
            "app": "victim",
            "sources": {
                "events": {
                    "schema": PAYLOAD,
                    "event_time": "event_ts",
                    "candidates": {"live": {"type": "kafka", "topic": "events"}},
                }
            },
            "sinks": {"out": {"type": "null"}},
        }
    )
    spark = open_session(config, "live", Home(Path(home)))

    def write(rows: DataFrame, number: int) -> None:
        unfinished, final = Path(out) / f"_{number}", Path(out) / f"batch={number}"
        rows.coalesce(1).write.mode("overwrite").parquet(str(unfinished))
        time.sleep(0.2)
        shutil.rmtree(final, ignore_errors=True)
        unfinished.rename(final)
        time.sleep(0.2)

    def counts(inputs: dict[str, DataFrame]) -> DataFrame:
        timed = inputs["events"].withWatermark("event_ts", "5 minutes")
        grouped = timed.groupBy(F.window("event_ts", "10 minutes"), "user").agg(F.count("*").alias("n"))
        return grouped.select("window.start", "user", "n")

    places = [Location.local(Path(one)) for one in (plan, checkpoint)]
    source = ArchiveSource(table, spark.table(table).schema, ["user", "event_ts"])
    outcome = run_slices(spark, places[0], "job", {"events": source}, counts, write, places[1])  # type: ignore[arg-type]
    (Path(out) / "finished").write_text(str(outcome.finished))


if __name__ == "__main__":
    main(*sys.argv[1:])
