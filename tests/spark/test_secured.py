"""A broker that demands TLS and a login; on it, topics with transactions and with compaction, and their proof."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from project import Project, wait_until
from servers.secured_kafka import PASSWORD, SecuredKafka, secured_kafka

from rekappa.archive.gaps import asked
from rekappa.archive.proofs import PartitionProof
from rekappa.archive.router import run_routers
from rekappa.archive.tables import routes
from rekappa.archive.verify import verify
from rekappa.home import Home
from rekappa.produce.topics import create_topics
from rekappa.sources.kafka import client_options
from rekappa.timeline import TICK, Window, instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = datetime(2026, 11, 1, 10, tzinfo=UTC)
ROWS = 50
CODE = """
from rekappa import App

app = App("secured")

@app.job
def copies(orders):
    return orders.select("id", "at")
"""
SOURCE = {"schema": "id BIGINT, at TIMESTAMP", "event_time": "at"}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "100",
}


def config(kafka: SecuredKafka) -> str:
    def source(topic: str, cluster: str = "main") -> dict[str, Any]:
        table = f"lake.secured.{topic}_{cluster}"
        live = {"type": "kafka", "cluster": cluster, "topic": topic}
        return SOURCE | {"candidates": {"live": live, "past": {"type": "iceberg", "table": table}}}

    login = {"bootstrap": kafka.bootstrap, "options": kafka.options()}
    committed = login | {"options": {**kafka.options(), "isolation.level": "read_committed"}}
    return json.dumps(
        {
            "app": "secured",
            "clusters": {"main": login, "committed": committed},
            "sources": {
                "orders": source("orders"),
                "all": source("moved"),
                "settled": source("moved", "committed"),
                "latest": source("latest"),
            },
            "sinks": {"copies": {"type": "iceberg", "table": "lake.secured.copies", "event_time": "at"}},
        }
    )


def event(number: int) -> bytes:
    return json.dumps({"id": number, "at": AT.isoformat()}).encode()


@pytest.fixture(scope="module")
def project(spark: SparkSession, home: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Orders sent by `rekappa produce`, transactions and compaction by clients of Kafka; all of it archived."""
    with secured_kafka(tmp_path_factory.mktemp("kafka")) as kafka:
        folder = tmp_path_factory.mktemp("apps") / "secured"
        made = Project.make(folder, home, kafka.bootstrap, CODE, config(kafka))
        lines = [f"{number},{(AT + timedelta(seconds=number)).isoformat()}" for number in range(ROWS)]
        (folder.parent / "orders.csv").write_text("\n".join(["id,at", *lines]))
        made.rekappa("produce", ".", "orders", str(folder.parent / "orders.csv"))
        options = client_options(made.loaded.config, "main", home)
        create_topics(options, ["moved"], 1)
        create_topics(options, ["latest"], 1, COMPACTED)
        send_transactions(options)
        send_until_compacted(options)
        run_routers(spark, made.loaded, home, available_now=True)
        yield made


def send_transactions(options: dict[str, str]) -> None:
    """Offsets 0-2 committed, 3 a marker, 4-5 aborted, 6 a marker, 7 committed, 8 a marker, 9 outside of any."""
    producer = Producer({**options, "transactional.id": "mover"})
    producer.init_transactions()
    for numbers, kept in (((0, 1, 2), True), ((3, 4), False), ((5,), True)):
        producer.begin_transaction()
        for number in numbers:
            producer.produce("moved", event(number), str(number))
        assert producer.flush(60) == 0
        if kept:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    plain = Producer(options)
    plain.produce("moved", event(6))
    assert plain.flush(60) == 0


def send_until_compacted(options: dict[str, str]) -> None:
    """One key that is never written again, then another over and over, until Kafka has removed some of it between."""
    producer = Producer(options)
    sent = 0

    def has_a_hole() -> bool:
        nonlocal sent
        producer.produce("latest", event(sent), "first" if sent == 0 else "again")
        assert producer.flush(60) == 0
        sent += 1
        found = offsets(options, "latest")
        return found[0] == 0 and len(found) < found[-1]

    wait_until(has_a_hole, "Kafka has compacted the topic")


def offsets(options: dict[str, str], topic: str) -> list[int]:
    """The offsets at which Kafka has a message now."""
    consumer = Consumer({**options, "group.id": "look", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        found.append(int(message.offset() or 0))
    consumer.close()
    return found


def proof(spark: SparkSession, project: Project, source: str) -> PartitionProof:
    (route,) = routes(project.loaded, source)
    (found,) = verify(spark, route, lambda: asked(project.loaded, project.home, route))
    return found


def ids(spark: SparkSession, table: str) -> Counter[int]:
    return Counter(row["id"] for row in spark.table(table).select("id").collect())


def test_nobody_gets_in_without_a_login(project: Project) -> None:
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": project.broker, "log_level": 0}).list_topics(timeout=5)
    shown = project.rekappa("config", ".", "--explain")
    assert "sasl.jaas.config" in shown
    assert PASSWORD not in shown


def test_produce_router_and_live_run_log_in(spark: SparkSession, project: Project) -> None:
    assert ids(spark, "lake.secured.orders_main") == Counter(range(ROWS))
    project.live()
    assert ids(spark, "lake.secured.copies") == Counter(range(ROWS))


def test_markers_and_what_was_aborted_are_not_lost(spark: SparkSession, project: Project) -> None:
    everything, settled = proof(spark, project, "all"), proof(spark, project, "settled")
    assert ids(spark, "lake.secured.moved_main") == Counter(range(7))
    assert ids(spark, "lake.secured.moved_committed") == Counter([0, 1, 2, 5, 6])
    assert (everything.empty, everything.missing, everything.gaps, everything.sound) == (3, 0, (), True)
    assert (settled.empty, settled.missing, settled.gaps, settled.sound) == (5, 0, (), True)
    (route,) = routes(project.loaded, "all")
    (unasked,) = verify(spark, route)
    assert (unasked.missing, unasked.untold, unasked.gaps) == (3, 3, ((3, 3), (6, 6), (8, 8)))


def test_what_compaction_removed_is_not_lost(spark: SparkSession, project: Project) -> None:
    found = proof(spark, project, "latest")
    assert found.sound
    assert found.empty > 0
    assert found.rows + found.empty == found.last - found.first + 1


def test_what_is_lost_is_told_from_what_holds_nothing(spark: SparkSession, project: Project) -> None:
    times = "SELECT __metadata__.offset, unix_micros(__metadata__.kafka_ingestion_ts) FROM lake.secured.moved_main"
    at = {offset: instant(value) for offset, value in spark.sql(times).collect()}
    spark.sql("DELETE FROM lake.secured.moved_main WHERE __metadata__.offset IN (1, 2, 7)")
    found = proof(spark, project, "all")
    assert (found.missing, found.untold, found.empty) == (3, 0, 3)
    assert found.gaps == ((1, 2), (7, 7))
    assert found.gap_times == ((min(at[1], at[2]), max(at[1], at[2])), (at[7], at[7])), "as Kafka has them"
    assert not found.sound
    admin = AdminClient({**client_options(project.loaded.config, "main", project.home)})
    (deleted,) = admin.delete_records([TopicPartition("moved", 0, 4)]).values()
    assert deleted.result(60).low_watermark == 4
    said = project.json("archive", "verify", ".", "--source", "all", expect=1)
    (told,) = said["partitions"]
    assert (said["sound"], told["missing"], told["untold"], told["empty"]) == (False, 4, 3, 2)
    assert told["gaps"] == [[1, 3], [7, 7]]
    around = Window(at[0], at[4] + TICK)
    assert all(around.contains(datetime.fromisoformat(one)) for one in told["gap_times"][0]), "of those around it"
