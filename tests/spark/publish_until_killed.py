"""Publishes to a service, or undoes it, slowly enough to be killed in the middle.

python publish_until_killed.py SERVERS.json HOME KIND publish|undo
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from publishing import part, publish, undo
from sink_rows import rows, sinks_config

from rekappa.config.model import AppConfig
from rekappa.home import Home
from rekappa.publish.publishers.keyed import KeyedPublisher
from rekappa.sinks.rate import rate_limited
from rekappa.sinks.registry import open_sink
from rekappa.sinks.service import ServiceSink
from rekappa.spark.session import open_session
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 400
CAP = 200.0
WINDOW = Window.parse("2026-11-01T08:00Z", "2026-11-02T08:00Z")


def slow_publisher(
    spark: SparkSession, config: AppConfig, home: Home, kind: str, cap: float | None = CAP
) -> KeyedPublisher:
    """All rows of the window become others, but for some that go and some that are new."""
    sink = rate_limited(open_sink(f"{kind}_killed_publish", config, home), cap)
    assert isinstance(sink, ServiceSink)
    staged = rows(spark, 20, COUNT + 20).selectExpr("* EXCEPT (name)", "'fixed' AS name").select(*sink_columns(spark))
    return KeyedPublisher(part(config, sink.name, staged, "run-8", WINDOW), kind, sink)


def sink_columns(spark: SparkSession) -> list[str]:
    return rows(spark, 0, 1).columns


def main(servers: Path, home: Home, kind: str, action: str) -> None:
    config = sinks_config(json.loads(servers.read_text()), hive=False)
    # Several tasks one after the other: each is a transaction.
    settings = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "10"}
    spark = open_session(config, "live", home, **settings)
    publisher = slow_publisher(spark, config, home, kind)
    (publish if action == "publish" else undo)(publisher)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Home(Path(sys.argv[2])), *sys.argv[3:])
