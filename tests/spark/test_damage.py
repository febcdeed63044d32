"""A damaged file of the archive: verify and compact say which one it is, whatever Spark says of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from rekappa.archive.compact import compact
from rekappa.archive.damage import damaged_files
from rekappa.archive.tables import Route
from rekappa.archive.verify import verify
from rekappa.cli.main import FAILED, WorkFailure, reported
from rekappa.config.model import AppConfig, KafkaCandidate
from rekappa.errors import ArchiveError
from rekappa.record import METADATA_TYPE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 3


def garbled(content: bytes) -> bytes:
    """The footer is whole: the file opens, and its pages can't be read."""
    pages = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    return content[:4] + random.Random(7).randbytes(pages - 4) + content[pages:]


@pytest.fixture
def route(spark: SparkSession, bare_config: AppConfig) -> Route:
    """A table of one hour, two days ago, in files of 4,000 messages each."""
    table = f"lake.damage.t{uuid4().hex[:8]}"
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.damage")
    spark.sql(f"CREATE TABLE {table} (id BIGINT, text STRING, __metadata__ {METADATA_TYPE}) USING iceberg")
    hour = (datetime.now(UTC) - timedelta(days=2)).replace(minute=0, second=0, microsecond=0)
    for number in range(FILES):
        rows = spark.range(number * 4000, (number + 1) * 4000, 1, 1).selectExpr(
            "id", "sha2(string(id), 256) AS text",
            f"CAST(named_struct('topic', 't', 'partition', 0, 'offset', id, 'kafka_ingestion_ts', "
            f"TIMESTAMP '{hour:%Y-%m-%d %H:%M:%S}' + make_dt_interval(0, 0, 0, id / 100), 'key', CAST(NULL AS BINARY), "
            f"'headers', NULL, 'region', 'local') AS {METADATA_TYPE}) AS __metadata__",
        )  # fmt: skip
        rows.writeTo(table).append()
    source = bare_config.sources["events"]
    kafka = source.candidates["live"]
    assert isinstance(kafka, KafkaCandidate)
    return Route("bare", "events", source, kafka, ("t",), table, f"{table}_dead")


WORK: dict[str, Callable[[SparkSession, Route], object]] = {
    "verify": verify,
    "compact": lambda spark, route: compact(spark, route, timedelta(hours=1)),
}


@pytest.mark.parametrize(
    ("doing", "damage"),
    [
        ("verify", garbled),
        ("compact", garbled),
        ("verify", lambda content: content[: len(content) // 2]),
        ("compact", lambda content: b""),
    ],
)
def test_the_damaged_file_is_named(
    spark: SparkSession, route: Route, doing: str, damage: Callable[[bytes], bytes]
) -> None:
    files = sorted(row.file_path for row in spark.table(f"{route.table}.files").select("file_path").collect())
    assert len(files) == FILES
    assert damaged_files(spark, route.table) == []
    path = Path(files[1].removeprefix("file:"))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(WorkFailure) as raised, reported():
        WORK[doing](spark, route)
    assert raised.value.exit_code == FAILED
    assert isinstance(raised.value.__cause__, ArchiveError)
    assert f"Cannot {doing} {route.table}: can't read file {files[1]}: " in raised.value.message
    assert "Nothing was changed." in (raised.value.hint or "")
    assert sum(1 for _ in spark.table(f"{route.table}.files").collect()) == FILES
