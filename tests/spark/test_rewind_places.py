"""Sinks that the configuration loses, gains or moves around a rewind: what the abandoned batches wrote is not left."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from project import Project

from rekappa.cli.main import main
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.produce.topics import create_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODE = """
from rekappa import App

app = App("APP")

@app.job
def rows(events):
    return events.select("id", "event_ts")
"""
CONFIG = """
app: {app}
sources:
  events:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {{type: kafka, topic: {app}_in, max_records_per_batch: 10}}
sinks:
  rows: {{type: iceberg, table: lake.places.{app}}}
{more}
profiles:
  live: {{trigger: 100 ms, spark.sql.shuffle.partitions: 1}}
"""


@dataclass
class Placed:
    """An app with one job and, beside its table, a folder of Parquet and whatever else is configured."""

    spark: SparkSession
    project: Project
    folder: Path
    sent: int = 0

    def configure(self, *more: str) -> None:
        lines = "\n".join(f"  {one}" for one in more)
        (self.project.folder / "rekappa.yaml").write_text(CONFIG.format(app=self.project.name, more=lines))

    @property
    def parquet(self) -> str:
        return f"files: {{type: parquet, job: rows, path: {self.folder}}}"

    def run(self, count: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.project.broker})
        for number in range(self.sent, self.sent + count):
            event = {"id": number, "event_ts": "2026-11-01T00:00:00Z"}
            producer.produce(f"{self.project.name}_in", json.dumps(event).encode(), partition=0)
        assert producer.flush(60) == 0
        self.sent += count
        self.project.live()

    def rewind(self, *words: str, expect: int = 0) -> str:
        told = CliRunner().invoke(
            main,
            ["rewind", str(self.project.folder), *words, "--yes"],
            env={"REKAPPA_HOME": str(self.project.home.root)},
        )
        assert told.exit_code == expect, (told.output, told.exception)
        return told.output

    def check(self, table: Sequence[int], files: Sequence[int]) -> None:
        self.spark.catalog.refreshTable(f"lake.places.{self.project.name}")
        written = self.spark.table(f"lake.places.{self.project.name}")
        assert Counter(row.id for row in written.collect()) == Counter(table)
        folders = [str(one) for one in self.folder.glob("batch=*")]
        found = self.spark.read.parquet(*folders).collect() if folders else []
        assert Counter(row.id for row in found) == Counter(files)


@pytest.fixture
def placed(spark: SparkSession, tmp_path: Path, home: Home, broker: str) -> Placed:
    name = f"placed_{uuid4().hex[:6]}"
    create_topics(broker, [f"{name}_in"], partitions=1)
    project = Project.make(tmp_path / name, home, broker, CODE.replace("APP", name), "")
    return Placed(spark, project, tmp_path / "files")


def test_a_sink_that_was_taken_out_of_the_configuration(placed: Placed) -> None:
    placed.configure(placed.parquet)
    placed.run(40)
    placed.configure()
    assert "no longer has what run" in placed.rewind("--to", "1", expect=2)
    placed.check(range(40), range(40))

    # Nothing of it is abandoned, so it may go; taken for a new one later, it would write all anew.
    placed.rewind("--new-savepoint")
    placed.run(10)
    placed.configure(placed.parquet)
    with pytest.raises(RunError, match="'files', which was not configured when that was rewound"):
        placed.run()
    placed.check(range(50), range(40))
    placed.rewind("--undo")
    placed.check(range(40), range(40))
    placed.run()
    placed.check(range(50), range(50))


def test_an_undo_takes_out_what_a_sink_got_that_came_after_the_rewind(placed: Placed) -> None:
    placed.configure()
    placed.run(30)
    placed.rewind("--to", "1")
    placed.configure(placed.parquet)
    placed.run(10)
    placed.check(range(40), range(40))
    placed.configure()
    assert "no longer has sink 'files'" in placed.rewind("--undo", expect=2)
    placed.check(range(40), range(40))
    placed.configure(placed.parquet)
    placed.rewind("--undo")
    placed.check(range(30), ())


def test_a_sink_that_was_moved(placed: Placed, tmp_path: Path) -> None:
    placed.configure(placed.parquet)
    placed.run(30)
    placed.configure(placed.parquet.replace(str(placed.folder), str(tmp_path / "others")))
    told = placed.rewind("--to", "0", expect=2)
    assert f"wrote sink 'files' to parquet {placed.folder}" in told
    placed.configure(placed.parquet)
    placed.rewind("--to", "0")
    placed.check(range(10), range(10))
    placed.run()
    placed.check(range(30), range(30))
