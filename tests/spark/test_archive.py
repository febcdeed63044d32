"""The router: nothing lost, nothing twice, nothing dropped for being odd."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from rekappa.archive.batch import BatchWriter
from rekappa.archive.compact import compact
from rekappa.archive.completeness import complete_until
from rekappa.archive.router import run_routers
from rekappa.archive.status import status
from rekappa.archive.tables import Route, routes
from rekappa.archive.verify import verify
from rekappa.config.load import Loaded, load
from rekappa.demo.produce import create_topics
from rekappa.errors import ArchiveError
from rekappa.home import Home
from rekappa.record import INGESTION, METADATA, OFFSET
from rekappa.replay.catalog import load_table
from rekappa.spark.offsetlog import last_committed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
CONFIG = """
app: archive_test
sources:
  events:
    schema: "{schema}"
    event_time: event_ts
    candidates:
      live: {{type: kafka, topic: {topic}}}
      past: {{type: iceberg, table: lake.archive_test.{topic}}}
sinks:
  out: {{type: "null"}}
archive: {{dead_letters: lake.archive_test.dead_{topic}, max_records_per_batch: 400}}
"""


class Archive:
    """One topic and its archive."""

    def __init__(self, spark: SparkSession, home: Home, broker: str, folder: Path) -> None:
        self.spark, self.broker, self.folder = spark, broker, folder
        self.home = Home(folder / ".rekappa")
        self.shared, self.topic = home, f"t{uuid4().hex[:10]}"
        create_topics(broker, [self.topic])
        self.declare("id BIGINT, event_ts TIMESTAMP")

    def declare(self, schema: str) -> None:
        (self.folder / "rekappa.yaml").write_text(CONFIG.format(schema=schema, topic=self.topic))

    @property
    def loaded(self) -> Loaded:
        return load(self.folder, overrides=[f"clusters.main.bootstrap={self.broker}"])

    @property
    def route(self) -> Route:
        return routes(self.loaded)[0]

    def send(self, values: Sequence[bytes | None], first: datetime = START) -> None:
        producer = Producer({"bootstrap.servers": self.broker})
        for number, value in enumerate(values):
            moment = first + timedelta(seconds=number)
            producer.produce(
                self.topic, value, f"k{number}".encode(), number % 2, timestamp=int(moment.timestamp() * 1000)
            )
        assert producer.flush(30) == 0

    def route_all(self) -> None:
        run_routers(self.spark, self.loaded, self.home, available_now=True)

    def rows(self) -> list[dict[str, Any]]:
        table = self.route.table
        self.spark.sql(f"REFRESH TABLE {table}")
        return [row.asDict(recursive=True) for row in self.spark.table(table).orderBy(OFFSET, INGESTION).collect()]

    def dead(self) -> list[Any]:
        table = self.route.dead_letters
        self.spark.sql(f"REFRESH TABLE {table}")
        return self.spark.table(table).orderBy(INGESTION).collect()

    def assert_sound(self, messages: int) -> None:
        proofs = verify(self.spark, self.route)
        assert all(proof.sound for proof in proofs), proofs
        assert sum(proof.rows + proof.dead for proof in proofs) == messages


@pytest.fixture
def archive(spark: SparkSession, home: Home, broker: str, tmp_path: Path) -> Archive:
    return Archive(spark, home, broker, tmp_path)


def event(number: int, **more: Any) -> bytes:
    return json.dumps({"id": number, "event_ts": START.isoformat(), **more}).encode()


def test_what_cannot_be_decoded_is_kept_apart(archive: Archive) -> None:
    bad = [None, b"", b"nope", b"[1]", b'{"id": "x"}', b'{"id": 1, "event_ts": "later"}']
    archive.send([event(1), *bad, event(2)])
    archive.route_all()
    assert [row["id"] for row in archive.rows()] == [1, 2]
    letters = archive.dead()
    assert [row["value"] for row in letters] == [value if value is None else bytearray(value) for value in bad]
    assert [row["reason"].split(":")[0] for row in letters] == [
        "null value", "empty value", "not JSON", "not a JSON object", "field 'id'", "field 'event_ts'",
    ]  # fmt: skip
    assert {row[METADATA]["partition"] for row in letters} == {0, 1}
    assert not any(row["archived"] for row in letters)
    archive.assert_sound(8)


def test_new_fields_become_columns(archive: Archive) -> None:
    archive.send([event(1), event(2, device="tv", score=1, deep={"a": [1]}), event(3, score=1.5, on=True)])
    archive.route_all()
    rows = {row["id"]: row for row in archive.rows()}
    assert (rows[1]["device"], rows[1]["score"]) == (None, None)
    assert (rows[2]["device"], rows[2]["score"], json.loads(rows[2]["deep"])) == ("tv", 1.0, {"a": [1]})
    assert (rows[3]["score"], rows[3]["on"]) == (1.5, True)
    archive.send([event(4, on="not a boolean", device="web"), event(5, ID=7), event(6, on=False)])
    archive.route_all()
    rows = {row["id"]: row for row in archive.rows()}
    assert (rows[4]["on"], rows[4]["device"], rows[6]["on"]) == (None, "web", False)
    letters = archive.dead()
    assert [row["reason"] for row in letters] == [
        "field 'on': \"not a boolean\" is not boolean",
        "field 'ID': no column can have this name",
    ]
    assert all(row["archived"] for row in letters)
    archive.assert_sound(6)


def test_the_configuration_gains_a_field(archive: Archive) -> None:
    archive.send([event(1)])
    archive.route_all()
    archive.declare("id BIGINT, event_ts TIMESTAMP, plan STRING")
    archive.send([event(2, plan="basic")])
    archive.route_all()
    assert [(row["id"], row["plan"]) for row in archive.rows()] == [(1, None), (2, "basic")]
    archive.declare("id STRING, event_ts TIMESTAMP")
    with pytest.raises(ArchiveError, match=r"column 'id' .* is bigint, the schema says 'id' string"):
        archive.route_all()


def test_a_batch_that_is_run_again_changes_nothing(archive: Archive) -> None:
    archive.send([event(number) for number in range(1000)] + [b"nope", event(1000, extra="x")])
    archive.route_all()
    folder = archive.route.checkpoint(archive.home)
    last = last_committed(folder)
    assert last is not None
    assert last >= 2
    for name in (str(last), f".{last}.crc"):
        (folder / "commits" / name).unlink(missing_ok=True)
    archive.route_all()
    archive.assert_sound(1002)


@pytest.mark.parametrize("victim", ["_grow", "_bury", "_append_sound"])
def test_a_crash_between_the_commits_of_a_batch(archive: Archive, victim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.send([event(1), b"nope", event(2, extra="x"), event(3)])
    real = getattr(BatchWriter, victim)

    def dying(self: BatchWriter, *arguments: Any) -> None:
        real(self, *arguments)
        raise SystemError("killed here")

    with monkeypatch.context() as patch:
        patch.setattr(BatchWriter, victim, dying)
        with pytest.raises(ArchiveError, match="Cannot go on archiving"):
            archive.route_all()
    archive.route_all()
    assert {row["id"]: row["extra"] for row in archive.rows()} == {1: None, 2: "x", 3: None}
    assert len(archive.dead()) == 1
    archive.assert_sound(4)


def test_a_lost_checkpoint_is_made_up_from_the_table(archive: Archive) -> None:
    archive.send([event(1), b"nope"])
    archive.route_all()
    archive.home = Home(archive.folder / "another")
    archive.send([event(2), event(3)])
    archive.route_all()
    archive.assert_sound(4)


def test_complete_until(archive: Archive) -> None:
    archive.send([event(number) for number in range(10)])
    before = datetime.now(UTC)
    archive.route_all()
    found = complete_until(load_table(archive.loaded.config, archive.route.table, archive.shared))
    assert before <= found["local"] <= datetime.now(UTC)


def test_compaction_merges_within_the_hour(archive: Archive, spark: SparkSession) -> None:
    for batch in range(3):
        archive.send([event(number) for number in range(batch * 100, batch * 100 + 100)], START + timedelta(minutes=59))
        archive.route_all()
    files = f"SELECT * FROM {archive.route.table}.files"
    before = spark.sql(files).count()
    done = compact(spark, archive.route, timedelta(hours=1))
    spark.sql(f"REFRESH TABLE {archive.route.table}")
    after = spark.sql(f"{files}").select("record_count", f"readable_metrics.`{INGESTION}`.*").collect()
    assert before > len(after) == 2
    assert done.files_before == before
    assert all(row["upper_bound"].hour == row["lower_bound"].hour for row in after)
    table = load_table(archive.loaded.config, archive.route.table, archive.shared)
    assert "local" in complete_until(table)
    archive.send([event(999)])
    archive.route_all()
    archive.assert_sound(301)
    shown = status(archive.loaded, archive.shared, archive.route)
    assert (shown.rows, shown.files) == (301, 3)
