"""One contract for every source: the same events give the same rows in the same schema."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from fastavro import parse_schema, schemaless_writer

from rekappa.archive.compact import compact
from rekappa.archive.router import run_routers
from rekappa.archive.tables import routes
from rekappa.config.load import Loaded, load
from rekappa.config.schema import avro_schema
from rekappa.errors import ConfigError, SourceError
from rekappa.home import Home
from rekappa.produce.topics import create_topics
from rekappa.record import METADATA, METADATA_TYPE
from rekappa.sources.open import open_batch, open_stream
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = datetime(2026, 11, 1, 10, 59, 59, 998000, tzinfo=UTC)
PAYLOAD = (
    "id BIGINT, name STRING, event_ts TIMESTAMP, place STRUCT<city: STRING, zip: INT>, tags ARRAY<STRING>, score DOUBLE"
)
CONFIG = """
app: shapes
clusters:
  east: {{bootstrap: stack, region: us-east}}
  west: {{bootstrap: stack, region: us-west}}
sources:
  events:
    schema: "{payload}"
    format: {format}
    event_time: event_ts
    candidates:
      live: {{type: kafka, cluster: {cluster}, topic: {topic}}}
      past: {{type: iceberg, table: lake.shapes.{topic}}}
      following: {{type: iceberg, table: lake.shapes.{topic}, follow: true}}
sinks:
  out: {{type: "null"}}
"""
EVENTS: list[dict[str, Any]] = [
    {
        "id": 1,
        "name": "one",
        "event_ts": START,
        "place": {"city": "Zürich", "zip": 8000},
        "tags": ["a", None],
        "score": 0.5,
    },
    {"id": 2, "name": None, "event_ts": None, "place": None, "tags": None, "score": None},
    {"id": None, "name": "", "event_ts": START, "place": {"city": None, "zip": None}, "tags": [], "score": -1.0},
    {"id": 2**62, "name": "☂", "event_ts": START - timedelta(days=9), "place": None, "tags": ["x"], "score": 1e300},
]
HEADERS: list[Any] = [
    [("trace", b"\x00\xff"), ("trace", b"again"), ("none", None), ("empty", b"")],
    None,
    [("", b"x")],
    None,
]
KEYS = [b"\x00\x01\xff", None, b"", b"k"]
UNDECODABLE = [None, b"", b"not an event"]


def as_json(event: dict[str, Any]) -> bytes:
    moment = event["event_ts"]
    return json.dumps(event | {"event_ts": moment and moment.isoformat(timespec="milliseconds")}).encode()


def as_avro(event: dict[str, Any], schema: Any) -> bytes:
    buffer = io.BytesIO()
    schemaless_writer(buffer, schema, event)
    return buffer.getvalue()


def make(folder: Path, topic: str, format: str = "json", cluster: str = "east") -> Loaded:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rekappa.yaml").write_text(CONFIG.format(payload=PAYLOAD, topic=topic, format=format, cluster=cluster))
    return load(folder)


def send(broker: str, topic: str, values: list[bytes | None]) -> None:
    create_topics(broker, [topic], partitions=1)
    producer = Producer({"bootstrap.servers": broker})
    for number, value in enumerate(values):
        event = number if number < len(EVENTS) else 0
        moment = START + timedelta(milliseconds=number)
        producer.produce(topic, value, KEYS[event], headers=HEADERS[event], timestamp=round(moment.timestamp() * 1000))
    assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def topics(broker: str, home: Home, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Loaded]:
    """The same events as JSON and as Avro, with what can't be decoded behind them, and the JSON ones archived."""
    root, mark = tmp_path_factory.mktemp("shapes"), uuid4().hex[:8]
    made = {name: make(root / name, f"{name}_{mark}", name) for name in ("json", "avro")}
    schema = parse_schema(json.loads(avro_schema(made["avro"].config.sources["events"], made["avro"].folder)))
    send(broker, f"json_{mark}", [*(as_json(event) for event in EVENTS), *UNDECODABLE])
    send(broker, f"avro_{mark}", [*(as_avro(event, schema) for event in EVENTS), None, b""])
    run_routers(spark, made["json"], home, available_now=True)
    return made


def drained(stream: DataFrame, checkpoint: Path) -> list[Any]:
    """Everything that the stream has now."""
    name = f"t_{uuid4().hex}"
    made = stream.writeStream.format("memory").queryName(name).option("checkpointLocation", str(checkpoint))
    made.trigger(availableNow=True).start().awaitTermination()
    return stream.sparkSession.table(name).collect()


class SourceContract(ABC):
    """What every source gives. Subclasses say how it is opened."""

    @abstractmethod
    def opened(self, spark: SparkSession, home: Home, topics: dict[str, Loaded]) -> DataFrame: ...

    def rows(self, found: DataFrame, folder: Path) -> list[Any]:
        return drained(found, folder) if found.isStreaming else found.collect()

    def test_schema(self, spark: SparkSession, home: Home, topics: dict[str, Loaded]) -> None:
        expected = f"STRUCT<{PAYLOAD}, {METADATA}: {METADATA_TYPE}>"
        assert (
            self.opened(spark, home, topics).schema
            == spark.sql(f"SELECT CAST(NULL AS {expected}) AS r").select("r.*").schema
        )

    def test_rows(self, spark: SparkSession, home: Home, topics: dict[str, Loaded], tmp_path: Path) -> None:
        found = sorted(self.rows(self.opened(spark, home, topics), tmp_path), key=lambda row: row[METADATA]["offset"])
        assert len(found) == len(EVENTS)
        for number, (row, event) in enumerate(zip(found, EVENTS, strict=True)):
            values = row.asDict(recursive=True)
            where = values.pop(METADATA)
            naive = event["event_ts"] and event["event_ts"].astimezone().replace(tzinfo=None)
            assert values == event | {"event_ts": naive}
            assert where.pop("topic").partition("_")[0] in ("json", "avro")
            headers = HEADERS[number]
            assert where == {
                "partition": 0,
                "offset": number,
                "kafka_ingestion_ts": (START + timedelta(milliseconds=number)).astimezone().replace(tzinfo=None),
                "key": KEYS[number] if KEYS[number] is None else bytearray(KEYS[number] or b""),
                "headers": headers and [{"key": k, "value": v if v is None else bytearray(v)} for k, v in headers],
                "region": "us-east",
            }


class TestKafkaJson(SourceContract):
    def opened(self, spark: SparkSession, home: Home, topics: dict[str, Loaded]) -> DataFrame:
        return open_stream(spark, topics["json"], home, "events")


class TestKafkaAvro(SourceContract):
    def opened(self, spark: SparkSession, home: Home, topics: dict[str, Loaded]) -> DataFrame:
        return open_stream(spark, topics["avro"], home, "events")


class TestArchive(SourceContract):
    def opened(self, spark: SparkSession, home: Home, topics: dict[str, Loaded]) -> DataFrame:
        return open_batch(spark, topics["json"], home, "events", None)

    def test_only_what_is_asked_for(self, spark: SparkSession, home: Home, topics: dict[str, Loaded]) -> None:
        window = Window(START + timedelta(milliseconds=1), START + timedelta(milliseconds=3))
        found = open_batch(spark, topics["json"], home, "events", window, ["us-east"], ["name", "id"])
        assert found.columns == ["id", "name", METADATA]
        assert [row.id for row in found.orderBy(f"{METADATA}.offset").collect()] == [2, None]
        assert open_batch(spark, topics["json"], home, "events", None, ["elsewhere"]).count() == 0


class TestArchiveFollowed(SourceContract):
    def opened(self, spark: SparkSession, home: Home, topics: dict[str, Loaded]) -> DataFrame:
        loaded = load(topics["json"].folder, overrides=["sources.events.selected=following"])
        return open_stream(spark, loaded, home, "events")


def test_several_clusters_are_one_source(
    spark: SparkSession, home: Home, topics: dict[str, Loaded], tmp_path: Path
) -> None:
    topic = topics["json"].config.sources["events"].candidates["live"]
    both = make(tmp_path / "both", topic.topic, cluster="[east, west]")  # type: ignore[union-attr]
    found = drained(open_stream(spark, both, home, "events"), tmp_path / "checkpoint")
    assert sorted((row[METADATA]["region"], row[METADATA]["offset"]) for row in found) == [
        (region, offset) for region in ("us-east", "us-west") for offset in range(len(EVENTS))
    ]


@pytest.fixture
def misnamed(topics: dict[str, Loaded]) -> Loaded:
    return load(topics["json"].folder, overrides=["sources.events.selected=past"])


def test_refusals(spark: SparkSession, home: Home, misnamed: Loaded) -> None:
    with pytest.raises(SourceError, match="Cannot run source 'events' live"):
        open_stream(spark, misnamed, home, "events")
    with pytest.raises(ConfigError, match="Cannot find source 'nothing'"):
        open_batch(spark, misnamed, home, "nothing", None)
    gone = load(misnamed.folder, overrides=["sources.events.candidates.past.table=lake.shapes.gone"])
    with pytest.raises(SourceError, match=r"lake\.shapes\.gone"):
        open_batch(spark, gone, home, "events", None)


def test_following_restarts_where_it_was(spark: SparkSession, home: Home, broker: str, tmp_path: Path) -> None:
    topic = f"follow_{uuid4().hex[:8]}"
    loaded = make(tmp_path / "app", topic)
    following = load(loaded.folder, overrides=["sources.events.selected=following"])
    seen = []
    for turn in range(2):
        send(broker, topic, [as_json(event | {"id": turn}) for event in EVENTS])
        run_routers(spark, loaded, home, available_now=True)
        seen.append([row.id for row in drained_once(open_stream(spark, following, home, "events"), tmp_path / "at")])
        compact(spark, routes(loaded)[0], timedelta(hours=1))
    seen.append([row.id for row in drained_once(open_stream(spark, following, home, "events"), tmp_path / "at")])
    assert seen == [[0] * len(EVENTS), [1] * len(EVENTS), []]


def drained_once(stream: DataFrame, checkpoint: Path) -> list[Any]:
    """What the stream has that it had not under this checkpoint before."""
    found: list[Any] = []
    made = stream.writeStream.foreachBatch(lambda rows, _: found.extend(rows.collect()))
    made.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    return found
