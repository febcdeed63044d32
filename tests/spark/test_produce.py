"""`rekappa produce` against a real broker: what arrives is what the file said; what would not be kept is refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from rekappa.cli.main import main
from rekappa.config.load import load
from rekappa.home import Home
from rekappa.produce.topics import create_topics
from rekappa.sources.kafka import records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONFIG = """\
app: kinds
clusters:
  us: {bootstrap: stack, region: us, topic_prefix: us.}
  eu: {bootstrap: stack, region: eu, topic_prefix: eu.}
  main: {bootstrap: stack}
sources:
  plain: &source
    schema: >-
      id BIGINT, b BOOLEAN, i INT, x DOUBLE, d DECIMAL(38, 6), s STRING, raw BINARY, day DATE, at TIMESTAMP,
      local TIMESTAMP_NTZ, tags ARRAY<STRING>, counts MAP<STRING, BIGINT>, inner STRUCT<a: INT, z: ARRAY<DOUBLE>>
    event_time: at
    candidates:
      live: {type: kafka, topic: produce_json}
  packed:
    <<: *source
    format: avro
    candidates:
      live: {type: kafka, topic: produce_avro}
  regional:
    <<: *source
    candidates:
      live: {type: kafka, cluster: [us, eu], topic: produce_regional}
sinks:
  out: {type: "null"}
"""
NOON = datetime(2025, 11, 3, 12, tzinfo=UTC)
ROWS: list[dict[str, Any]] = [
    {
        "id": 1, "b": True, "i": -5, "x": 0.1, "d": Decimal("12345678901234567890123456789012.345678"),
        "s": 'quoted "ü"\n', "raw": b"\x00\xff", "day": date(2025, 11, 3), "at": NOON.replace(microsecond=123456),
        "local": datetime(2025, 11, 3, 7, 0, 0, 5), "tags": ["a", None], "counts": [("k", 7), ("n", None)],
        "inner": {"a": 1, "z": [1.5, float("inf")]},
    },
    {**dict.fromkeys(("b", "i", "x", "d", "s", "raw", "day", "local", "tags", "counts", "inner")), "id": 2,
     "at": NOON.replace(hour=11)},
]  # fmt: skip


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, home: Home, broker: str) -> Path:
    folder = tmp_path_factory.mktemp("kinds")
    (folder / "rekappa.yaml").write_text(CONFIG)
    (folder / "app.py").write_text("from rekappa import App\n\napp = App('kinds')\n")
    kinds = pa.schema(
        [
            ("id", pa.int64()), ("b", pa.bool_()), ("i", pa.int32()), ("x", pa.float64()), ("d", pa.decimal128(38, 6)),
            ("s", pa.string()), ("raw", pa.binary()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")), ("tags", pa.list_(pa.string())),
            ("counts", pa.map_(pa.string(), pa.int64())),
            ("inner", pa.struct([("a", pa.int32()), ("z", pa.list_(pa.float64()))])),
        ]
    )  # fmt: skip
    pq.write_table(pa.Table.from_pylist(ROWS, kinds), folder / "rows.parquet")
    return folder


@pytest.fixture
def call(app: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setenv("REKAPPA_HOME", str(home.root))
    return lambda *words: CliRunner().invoke(main, ["produce", str(app), *words])


def messages(spark: SparkSession, broker: str, topic: str) -> DataFrame:
    from pyspark.sql import functions as F

    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker).option("subscribe", topic)
    return reader.option("includeHeaders", "true").load().withColumn("region", F.lit("local"))


@pytest.mark.parametrize(("source", "topic"), [("plain", "produce_json"), ("packed", "produce_avro")])
def test_every_type_arrives_as_it_was(
    spark: SparkSession, broker: str, app: Path, call: Callable[..., Result], source: str, topic: str
) -> None:
    told = call(source, str(app / "rows.parquet"), "--key", "id", "--json")
    assert told.exit_code == 0, told.output
    assert (json.loads(told.stdout)["sent"], json.loads(told.stdout)["makes_topic"]) == (2, True)
    loaded = load(app)
    read = records(messages(spark, broker, topic), loaded, loaded.config.sources[source])
    schema = [(field.name, field.dataType) for field in read.schema.fields if field.name != "__metadata__"]
    written = [{**row, "counts": row["counts"] and dict(row["counts"])} for row in ROWS]
    expected = spark.createDataFrame([tuple(row[name] for name, _ in schema) for row in written], _named(schema))
    found = read.select(*(name for name, _ in schema))
    assert Counter(map(repr, found.collect())) == Counter(map(repr, expected.collect()))
    stamps = read.selectExpr(
        "id", "unix_millis(__metadata__.kafka_ingestion_ts) ms", "cast(__metadata__.key as string)"
    )
    assert sorted(tuple(row) for row in stamps.collect()) == [(1, 1762171200123, "1"), (2, 1762167600000, "2")]


def _named(schema: list[tuple[str, Any]]) -> Any:
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(name, kind) for name, kind in schema])


def test_a_region_is_chosen_and_nothing_is_sent_without_one(app: Path, call: Callable[..., Result]) -> None:
    file = str(app / "rows.parquet")
    refused = call("regional", file)
    assert refused.exit_code == 2
    assert "hint: Say which: --region us or --region eu" in refused.stderr
    shown = call("regional", file, "--region", "eu", "--dry-run", "--json")
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert (found["topic"], found["sent"], found["makes_topic"]) == ("eu.produce_regional", 0, True)
    assert json.loads(found["example"]["value"])["id"] == 2, "the earliest comes first"
    sent = call("regional", file, "--region", "eu", "--json")
    assert json.loads(sent.stdout)["makes_topic"], "a dry run makes no topic"


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"retention.ms": "3600000"}, "deletes what is older than 1h"),
        ({"message.timestamp.type": "LogAppendTime"}, "stamps messages with the time at which they arrive"),
        ({"message.timestamp.before.max.ms": "60000"}, "refuses times before 1m ago"),
    ],
)
def test_a_topic_that_would_not_keep_the_times_is_refused(
    broker: str, app: Path, call: Callable[..., Result], setting: dict[str, str], words: str
) -> None:
    topic = f"produce_{next(iter(setting))}"
    create_topics(broker, [topic], settings=setting)
    told = call("plain", str(app / "rows.parquet"), "--set", f"sources.plain.candidates.live.topic={topic}")
    assert told.exit_code == 2
    assert words in told.stderr


def test_an_event_that_is_too_large_says_how_many_are_there(tmp_path: Path, call: Callable[..., Result]) -> None:
    """Only the client knows how much it takes: what went before is counted, so that nobody sends it again unawares."""
    rows = [{"id": number, "at": f"2025-11-03T12:00:{number:02}Z", "s": "x"} for number in range(4)]
    rows[3]["s"] = "x" * 2_000_000
    file = tmp_path / "large.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = call("plain", str(file), "--set", "sources.plain.candidates.live.topic=produce_large")
    assert told.exit_code == 1
    assert "Message size too large; 3 were stored" in told.stderr.replace("\n", " ")
    assert "Sending them again repeats those" in told.stderr
