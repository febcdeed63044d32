"""The router: nothing lost, nothing twice, nothing dropped for being odd."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from archiving import START, TWO, Archive, event

from rekappa.archive.compact import compact
from rekappa.archive.completeness import complete_until
from rekappa.archive.cost import cost
from rekappa.archive.status import status
from rekappa.archive.verify import verify
from rekappa.errors import ArchiveError
from rekappa.home import Home
from rekappa.iceberg.catalog import load_table
from rekappa.record import INGESTION, METADATA
from rekappa.spark.offsetlog import last_committed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def archive(spark: SparkSession, home: Home, broker: str, tmp_path: Path) -> Archive:
    return Archive(spark, home, broker, tmp_path)


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
        (folder / "commits" / name).remove()
    archive.route_all()
    archive.assert_sound(1002)


def test_a_batch_that_failed_halfway_is_finished(archive: Archive, spark: SparkSession) -> None:
    archive.send([event(1), event(2)])
    archive.route_all()
    dead = archive.route.dead_letters
    spark.sql(f"DROP TABLE {dead}")
    spark.sql(f"CREATE TABLE {dead} (something INT) USING iceberg")
    archive.send([event(3), b"nope", event(4, extra="x")])
    with pytest.raises(ArchiveError, match="Cannot go on archiving source 'events'"):
        archive.route_all()
    spark.sql(f"DROP TABLE {dead}")
    archive.route_all()
    assert sorted((row["id"], row["extra"]) for row in archive.rows()) == [(1, None), (2, None), (3, None), (4, "x")]
    archive.assert_sound(5)


def test_regions_with_topics_of_their_own(archive: Archive) -> None:
    archive.declare("id BIGINT, event_ts TIMESTAMP", TWO)
    archive.send([event(number) for number in range(20)], prefix="us.")
    archive.send([event(number) for number in range(6)] + [b"nope"], prefix="eu.")
    archive.route_all()
    topics = {region: f"{region}.{archive.topic}" for region in ("us", "eu")}
    proofs = verify(archive.spark, archive.route)
    assert [(one.topic, one.region, one.partition, one.rows + one.dead) for one in proofs] == [
        (topics["eu"], "eu", 0, 4),
        (topics["eu"], "eu", 1, 3),
        (topics["us"], "us", 0, 10),
        (topics["us"], "us", 1, 10),
    ]
    archive.send([event(number) for number in range(6, 9)], prefix="eu.")
    shown = status(archive.loaded, archive.home, archive.route)
    assert (shown.topics, shown.rows, shown.lag, shown.dead_letters) == (tuple(topics.values()), 26, 3, 1)
    assert shown.complete_until.keys() == {"us", "eu"}
    # Without its checkpoint the router carries on after what the table holds of each region's topic.
    archive.route.checkpoint(archive.home).remove()
    archive.route_all()
    archive.assert_sound(30)
    measured = cost(archive.loaded, archive.home, archive.route, 30)
    logged = [archive.home.stack.rglob(f"{topic}-*/*.log") for topic in topics.values()]
    stored = sum(file.stat().st_size for files in logged for file in files)
    assert (measured.messages, measured.measured) == (29, "log files")
    assert measured.kafka_bytes_per_message == stored / 30


def test_compaction_merges_within_the_hour(archive: Archive, spark: SparkSession) -> None:
    before_all = datetime.now(UTC)
    for batch in range(2):
        archive.send([event(number) for number in range(batch * 100, batch * 100 + 100)], START + timedelta(minutes=59))
        archive.route_all()
    table = load_table(archive.loaded.config, archive.route.table, archive.home)
    assert before_all <= complete_until(table)["local"] <= datetime.now(UTC)
    files = f"SELECT * FROM {archive.route.table}.files"
    before = spark.sql(files).count()
    done = compact(spark, archive.route, timedelta(hours=1))
    after = spark.sql(files).select("record_count", f"readable_metrics.`{INGESTION}`.*").collect()
    assert before > len(after) == 2
    assert done.files_before == before
    assert all(row["upper_bound"].hour == row["lower_bound"].hour for row in after)
    compacted = load_table(archive.loaded.config, archive.route.table, archive.home)
    assert complete_until(compacted) == complete_until(table)
    archive.send([event(999)])
    archive.route_all()
    archive.assert_sound(201)
    shown = status(archive.loaded, archive.home, archive.route)
    assert (shown.rows, shown.files) == (201, 3)
