"""A lookup's table changes while a live run goes on, and just before it is killed: each event sees its own version."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from project import Project, wait_until

from rekappa.demo.events import Event
from rekappa.home import Home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 11, 1, tzinfo=UTC)
CODE = """
from rekappa import App

app = App("lookup_live")

@app.job
def priced(orders, prices):
    return prices.join(orders, at="event_ts").select("id", "sku", "cents", "event_ts")
"""
CONFIG = """
app: lookup_live
sources:
  orders:
    schema: id BIGINT, sku STRING, event_ts TIMESTAMP
    event_time: event_ts
    candidates: {live: {type: kafka, topic: lookup_live_orders}}
lookups:
  prices: {type: iceberg, table: lake.lookup_live.prices, key: sku, valid_from: since}
sinks:
  priced: {type: iceberg, table: lake.lookup_live.priced, event_time: event_ts}
profiles:
  live: {trigger: 100 ms}
"""


def test_versions_that_come_while_it_runs_are_seen_at_the_next_micro_batch(
    spark: SparkSession, tmp_path: Path, home: Home, broker: str
) -> None:
    project = Project.make(tmp_path / "lookup_live", home, broker, CODE, CONFIG)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.lookup_live")
    spark.sql("CREATE TABLE lake.lookup_live.prices (sku STRING, cents INT, since TIMESTAMP) USING iceberg")

    def price(cents: int, minute: int) -> None:
        since = f"TIMESTAMP '{START + timedelta(minutes=minute):%Y-%m-%d %H:%M:%S}'"
        spark.sql(f"INSERT INTO lake.lookup_live.prices VALUES ('s', {cents}, {since})")

    def order(number: int, minute: int) -> Event:
        moment = START + timedelta(minutes=minute)
        return Event("lookup_live_orders", "local", number, moment, moment, {"id": number, "sku": "s"})

    def found() -> dict[int, int]:
        if not spark.catalog.tableExists("lake.lookup_live.priced"):
            return {}
        rows = spark.table("lake.lookup_live.priced").collect()
        assert len({row.id for row in rows}) == len(rows)
        return {row.id: row.cents for row in rows}

    def there(orders: int) -> bool:
        return len(found()) == orders

    price(1, 0)
    project.send([order(1, 5)])
    process = project.start("run", str(project.folder))
    try:
        wait_until(partial(there, 1), "the first order is there")
        for number in (2, 3):
            price(number, 10 * number)
            # One of the time before the change, and one after it.
            project.send([order(10 * number, 10 * number - 1), order(10 * number + 1, 10 * number + 1)])
            wait_until(partial(there, 2 * number - 1), "the orders around the change are there")
        price(4, 40)
        process.kill()
        process.communicate()
        project.send([order(40, 39), order(41, 41)])
        process = project.start("run", str(project.folder))
        wait_until(partial(there, 7), "the orders after the kill are there")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert found() == {1: 1, 20: 1, 21: 2, 30: 2, 31: 3, 40: 3, 41: 4}
