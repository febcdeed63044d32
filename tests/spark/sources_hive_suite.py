"""The source contract for Hive; run by test_sources_hive.py in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from shapes import record_ddl
from test_sources import EVENTS, HEADERS, KEYS, PAYLOAD, START, SourceContract

from rekappa.config.load import Loaded, load
from rekappa.errors import SourceError
from rekappa.home import Home
from rekappa.record import METADATA
from rekappa.sources.open import open_batch
from rekappa.spark.session import open_session
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONFIG = """
app: hive_shapes
sources:
  events:
    schema: "{payload}"
    event_time: event_ts
    candidates:
      live: {{type: kafka, topic: events}}
      past: {{type: hive, database: default, table: {table}, where: "day = 'a'"}}
sinks:
  out: {{type: "null"}}
"""


@pytest.fixture(scope="module")
def home() -> Home:
    return Home(Path(os.environ["SOURCES_HOME"]))


def app(home: Home, table: str) -> Loaded:
    folder = home.root / table
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rekappa.yaml").write_text(CONFIG.format(payload=PAYLOAD, table=table))
    return load(folder)


@pytest.fixture(scope="module")
def spark(home: Home) -> Iterator[SparkSession]:
    session = open_session(app(home, "json_whole").config, "backfill", home, **{"spark.sql.shuffle.partitions": "2"})
    session.conf.set("hive.exec.dynamic.partition.mode", "nonstrict")
    rows: list[Any] = []
    for number, event in enumerate(EVENTS):
        moment = START + timedelta(milliseconds=number)
        where = ("json_x", 0, number, moment, KEYS[number], HEADERS[number], "us-east")
        rows.append((*event.values(), where))
    events = session.createDataFrame(rows, record_ddl(PAYLOAD))
    for name, columns in (("json_whole", events.columns), ("json_bare", events.columns[:-1])):
        declared = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in events.select(*columns).schema.fields)
        session.sql(f"CREATE TABLE default.{name} ({declared}) PARTITIONED BY (day STRING) STORED AS PARQUET")
        for day in ("a", "b"):
            events.select(*columns).selectExpr("*", f"'{day}' AS day").write.insertInto(f"default.{name}")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def topics(home: Home) -> dict[str, Loaded]:
    return {"json": app(home, "json_whole")}


class TestHive(SourceContract):
    def opened(self, spark: SparkSession, home: Home, topics: dict[str, Loaded]) -> DataFrame:
        return open_batch(spark, topics["json"], home, "events", None)


def test_a_table_without_metadata(spark: SparkSession, home: Home, topics: dict[str, Loaded]) -> None:
    window = Window(START, START + timedelta(seconds=1))
    found = open_batch(spark, app(home, "json_bare"), home, "events", window)
    assert found.schema == open_batch(spark, topics["json"], home, "events", None).schema
    rows = found.collect()
    assert sorted(str(row["id"]) for row in rows) == ["1", "None"]
    assert {(row[METADATA]["topic"], row[METADATA]["offset"]) for row in rows} == {("json_bare", None)}


@pytest.mark.parametrize("where", ["name = 'x'", "day = ", "day = 'a' AND nothing > 1"])
def test_where_is_about_partitions(spark: SparkSession, home: Home, where: str) -> None:
    wrong = load(home.root / "json_whole", overrides=[f"sources.events.candidates.past.where={where}"])
    with pytest.raises(SourceError, match="Cannot use where"):
        open_batch(spark, wrong, home, "events", None)
