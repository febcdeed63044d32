"""Messages with a schema registry: live and through the archive alike, whichever version of a schema wrote them."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from fastavro import parse_schema, schemaless_writer
from servers.proxy import Proxy
from servers.registry_node import RegistryServer, registry
from test_sources import drained

from rekappa.archive.router import run_routers
from rekappa.archive.tables import routes
from rekappa.archive.verify import verify
from rekappa.config.load import Loaded, load
from rekappa.errors import ArchiveError, SourceError
from rekappa.home import Home
from rekappa.produce.registered import event_encoder
from rekappa.produce.topics import create_topics
from rekappa.record import METADATA
from rekappa.sources.kafka import records
from rekappa.sources.open import open_batch, open_stream
from rekappa.sources.payloads.protobuf import message_class
from rekappa.sources.payloads.registry import Schema
from rekappa.sources.payloads.wire import framed, written_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = datetime(2026, 11, 1, 10, 0, 0, 123000, tzinfo=UTC)
MANY = 400
"""Messages of each version: far more than lookups."""
CONFIG = """
app: registered
registries: {{main: {{url: "{url}"}}}}
sources:
  avro:
    schema: {{file: order.avsc}}
    format: {{type: avro, registry: main}}
    event_time: at
    candidates:
      live: {{type: kafka, topic: avro_{mark}}}
      past: {{type: iceberg, table: lake.registered.avro_{mark}}}
  proto:
    schema: &columns "id BIGINT, status STRING, at TIMESTAMP, price STRUCT<cents: BIGINT>, tags MAP<STRING, INT>"
    format: {{type: protobuf, registry: main}}
    event_time: at
    candidates:
      live: {{type: kafka, topic: proto_{mark}}}
      past: {{type: iceberg, table: lake.registered.proto_{mark}}}
  text:
    schema: *columns
    format: {{type: json, registry: main}}
    event_time: at
    candidates:
      live: {{type: kafka, topic: text_{mark}}}
      past: {{type: iceberg, table: lake.registered.text_{mark}}}
sinks:
  out: {{type: "null"}}
archive: {{dead_letters: lake.registered.dead_{mark}}}
"""
TIME = {"type": "long", "logicalType": "timestamp-millis"}
DECLARED = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "status", "type": "string", "aliases": ["state"], "default": "unknown"},
        {"name": "at", "type": TIME},
        {"name": "price", "type": ["null", {"type": "record", "name": "Money", "fields": [
            {"name": "cents", "type": "long"}]}], "default": None},
    ],
}  # fmt: skip
AVRO_1 = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "int"}, {"name": "at", "type": TIME}, {"name": "gone", "type": "string"},
    ],
}  # fmt: skip
AVRO_2 = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"}, {"name": "at", "type": TIME}, {"name": "state", "type": "string"},
    ],
}  # fmt: skip
MONEY = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'
PROTO_1 = """
syntax = "proto3"; import "google/protobuf/timestamp.proto";
message Other {} message Order { int64 id = 1; google.protobuf.Timestamp at = 2; string gone = 3; }
"""
PROTO_2 = """
syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "money.proto";
message Order {
  enum Status { NEW = 0; PAID = 1; }
  int64 id = 1; google.protobuf.Timestamp at = 2; Status status = 4; shop.Money price = 5; map<string, int32> tags = 6;
}
"""
JSON = '{"type": "object", "properties": {"id": {"type": "integer"}}}'


def avro(schema: Any, schema_id: int, value: Mapping[str, Any]) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(schema), dict(value))
    return framed(schema_id, out.getvalue())


class Topics:
    """Three topics, one per format, each with messages of two versions and with what is no event."""

    def __init__(self, server: RegistryServer, broker: str, folder: Path) -> None:
        self.mark, self.broker, self.server = uuid4().hex[:8], broker, server
        self.proxy = Proxy(int(server.url.split(":")[2].split("/")[0]))
        self.proxy.open()
        (folder / "order.avsc").write_text(json.dumps(DECLARED))
        url = f"http://127.0.0.1:{self.proxy.port}/apis/ccompat/v7"
        (folder / "rekappa.yaml").write_text(CONFIG.format(url=url, mark=self.mark))
        self.loaded: Loaded = load(folder)
        self.ids = {
            "avro": [server.register(f"avro_{self.mark}-value", json.dumps(one), "AVRO") for one in (AVRO_1, AVRO_2)],
            "text": [server.register(f"text_{self.mark}-value", JSON, "JSON")],
        }
        server.register("money", MONEY, "PROTOBUF")
        money = [{"name": "money.proto", "subject": "money", "version": 1}]
        subject = f"proto_{self.mark}-value"
        self.ids["proto"] = [
            server.register(subject, PROTO_1, "PROTOBUF"),
            server.register(subject, PROTO_2, "PROTOBUF", money),
        ]

    def send(self, source: str, values: list[bytes | None]) -> None:
        topic = f"{source}_{self.mark}"
        create_topics(self.broker, [topic])
        producer = Producer({"bootstrap.servers": self.broker})
        for number, value in enumerate(values):
            moment = round((AT + timedelta(milliseconds=number)).timestamp() * 1000)
            producer.produce(topic, value, partition=number % 2, timestamp=moment)
        assert producer.flush(60) == 0

    def avro(self) -> list[bytes | None]:
        first, second = self.ids["avro"]
        old = [avro(AVRO_1, first, {"id": n, "at": AT, "gone": "x"}) for n in range(MANY)]
        new = [avro(AVRO_2, second, {"id": n, "at": AT, "state": "paid"}) for n in range(MANY)]
        bad = [None, b"", b"{}", framed(999_999, b"x"), framed(second, b"\xff"), framed(self.ids["text"][0], b"{}")]
        return [*old, *new, *bad]

    def proto(self) -> list[bytes | None]:
        first, second = self.ids["proto"]
        older = message_class(Schema(first, "PROTOBUF", PROTO_1), {}, (1,))
        newer = message_class(Schema(second, "PROTOBUF", PROTO_2), {"money.proto": Schema(0, "PROTOBUF", MONEY)}, (0,))
        messages: list[bytes | None] = []
        for number in range(MANY):
            one, two = older(id=number, gone="x"), newer(id=number, status=1, tags={"a": number})
            one.at.FromDatetime(AT)
            two.at.FromDatetime(AT)
            two.price.cents = number
            messages.append(framed(first, written_steps((1,)) + one.SerializeToString()))
            messages.append(framed(second, written_steps((0,)) + two.SerializeToString()))
        bad = [framed(first, written_steps((7,))), framed(second, b"\0\xff\xff"), framed(999_998, b"\0")]
        return [*messages, None, *bad]

    def text(self) -> list[bytes | None]:
        (known,) = self.ids["text"]
        events = [{"id": n, "status": "new", "at": AT.isoformat(), "extra": n} for n in range(MANY)]
        bad = [
            framed(known, b"nope"),
            framed(known, b""),
            framed(known, b'{"id": "x"}'),
            b'{"id": 1}',
            framed(9**9, b"{}"),
        ]
        return [*(framed(known, json.dumps(event).encode()) for event in events), *bad]


@pytest.fixture(scope="module")
def topics(spark: SparkSession, broker: str, home: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    """Sent, some of each by `rekappa produce`'s own encoder, and archived."""
    with registry(tmp_path_factory.mktemp("registry")) as server:
        made = Topics(server, broker, tmp_path_factory.mktemp("registered"))
        for source in ("avro", "proto", "text"):
            encode = event_encoder(made.loaded, made.loaded.config.sources[source], f"{source}_{made.mark}")
            value = {"id": -1, "at": AT, "status": "PAID", "state": "PAID", "price": {"cents": 7}, "tags": {}}
            made.send(source, [*getattr(made, source)(), encode(value)])
        run_routers(spark, made.loaded, home, available_now=True)
        yield made


def rows(found: list[Any]) -> Counter[str]:
    return Counter(json.dumps(row.asDict(recursive=True), default=str, sort_keys=True) for row in found)


@pytest.mark.parametrize("source", ["avro", "proto", "text"])
def test_live_and_archive_hold_the_same_events(
    spark: SparkSession, home: Home, topics: Topics, tmp_path: Path, source: str
) -> None:
    live = drained(open_stream(spark, topics.loaded, home, source), tmp_path)
    past = open_batch(spark, topics.loaded, home, source, None).collect()
    assert rows(live) == rows(past)
    assert len(past) == (MANY if source == "text" else 2 * MANY) + 1


def found(spark: SparkSession, home: Home, topics: Topics, source: str) -> Counter[tuple[Any, ...]]:
    events = open_batch(spark, topics.loaded, home, source, None).drop(METADATA)
    return Counter(tuple(str(value) for value in row) for row in events.collect())


def test_versions_become_the_declared_schema(spark: SparkSession, home: Home, topics: Topics) -> None:
    at = str(AT.astimezone().replace(tzinfo=None))
    none = str(None)
    expected: Counter[tuple[str, ...]] = Counter((str(n), "unknown", at, none) for n in range(MANY))
    expected += Counter((str(n), "paid", at, none) for n in range(MANY))
    expected += Counter([("-1", "PAID", at, none)])
    assert found(spark, home, topics, "avro") == expected
    expected = Counter((str(n), none, at, none, none) for n in range(MANY))
    expected += Counter((str(n), "PAID", at, f"Row(cents={n})", str({"a": n})) for n in range(MANY))
    expected += Counter([("-1", "PAID", at, "Row(cents=7)", "{}")])
    assert found(spark, home, topics, "proto") == expected


def test_what_is_no_event_is_kept_with_its_reason(spark: SparkSession, topics: Topics) -> None:
    letters = spark.table(f"lake.registered.dead_{topics.mark}").orderBy(f"{METADATA}.kafka_ingestion_ts").collect()
    first, second = topics.ids["proto"]
    (text,) = topics.ids["text"]
    reasons = {
        "avro": [
            "null value", "empty value", "no schema id in front: it begins with 7b 7d", "unknown schema id 999999",
            f"not a record of schema {topics.ids['avro'][1]}: it ends too early",
            f"schema {text} is of kind JSON, not AVRO",
        ],
        "proto": [
            "null value", f"schema {first} has no message type at 7", f"not a message of schema {second}:",
            "unknown schema id 999998",
        ],
        "text": [
            "not JSON:", "empty value", "field 'id'", "no schema id in front", f"unknown schema id {9**9}",
        ],
    }  # fmt: skip
    for source, expected in reasons.items():
        said = [row["reason"] for row in letters if row["source"] == source]
        assert len(said) == len(expected), said
        assert all(one.startswith(start) for one, start in zip(said, expected, strict=True)), said
    for route in routes(topics.loaded):
        assert all(proof.sound for proof in verify(spark, route))


def test_fields_that_nobody_declared_become_columns_of_json(spark: SparkSession, topics: Topics) -> None:
    table = spark.table(f"lake.registered.text_{topics.mark}")
    assert Counter(row["extra"] for row in table.collect()) == Counter([*range(MANY), None])


def test_a_process_asks_for_an_id_once(topics: Topics) -> None:
    """Spark ends idle workers and starts others: how many there were depends on the machine, but is far from this."""
    assert sum(len(ids) for ids in topics.ids.values()) < topics.server.lookups() < MANY


def test_a_message_is_decoded_once_whatever_the_job_asks_for(spark: SparkSession, topics: Topics) -> None:
    raw = spark.createDataFrame(
        [],
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, region STRING, "
        "headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
    )
    for source in ("avro", "text"):
        read = (
            records(raw, topics.loaded, topics.loaded.config.sources[source]).where("id > 3").groupBy("status").count()
        )
        plan = read._jdf.queryExecution().optimizedPlan().toString()
        assert plan.count("ArrowEvalPython") == 1, plan
        assert plan.count("decoded_by_registry(value") + plan.count("schema_problem(value") == 1, plan


def test_a_registry_that_is_away_loses_nothing(spark: SparkSession, home: Home, topics: Topics) -> None:
    newer = {**AVRO_2, "fields": [*AVRO_2["fields"], {"name": "note", "type": "string", "default": ""}]}
    number = topics.server.register(f"avro_{topics.mark}-value", json.dumps(newer), "AVRO")
    before = spark.table(f"lake.registered.avro_{topics.mark}").count()
    value = {"id": 5, "at": AT, "state": "away", "note": ""}
    topics.send("avro", [avro(newer, number, value), framed(999_999, b"x")])
    topics.proxy.shut()
    with pytest.raises(ArchiveError, match="Cannot ask the schema registry"):
        run_routers(spark, topics.loaded, home, only="avro", available_now=True)
    with pytest.raises(SourceError, match="Cannot ask the schema registry"):
        event_encoder(topics.loaded, topics.loaded.config.sources["avro"], f"avro_{topics.mark}")
    topics.proxy.open()
    run_routers(spark, topics.loaded, home, only="avro", available_now=True)
    table = spark.table(f"lake.registered.avro_{topics.mark}")
    assert table.count() == before + 1
    assert table.where("status = 'away'").count() == 1
    assert all(proof.sound for proof in verify(spark, routes(topics.loaded, "avro")[0]))
