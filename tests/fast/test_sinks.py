"""What sinks decide without a server."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from pyspark.sql.types import StructType

from rekappa.errors import SetupError, SinkError
from rekappa.sinks import cassandra, opensearch, postgres
from rekappa.sinks.clients import client
from rekappa.sinks.contract import BatchId, window_column
from rekappa.sinks.fit import require_columns
from rekappa.sinks.hive import partition_spec
from rekappa.sinks.keys import MARK, refused
from rekappa.sinks.parquet import folder_name
from rekappa.staging.tables import StagingTable


def schema(**columns: str | StructType) -> StructType:
    made = StructType()
    for name, kind in columns.items():
        made = made.add(name, kind)
    return made


def test_a_key_that_the_job_does_not_make_is_refused() -> None:
    with pytest.raises(SinkError, match="its key names uid, which is not among the columns id, window"):
        require_columns(schema(id="integer", window=schema(start="timestamp")), ("uid", "window.start"), "key", "plays")


def test_the_window_goes_by_event_time_or_by_ingestion() -> None:
    kept = schema(id="integer", __metadata__=schema(kafka_ingestion_ts="timestamp"))
    assert window_column(kept, "at", "plays") == "at"
    assert window_column(kept, None, "plays") == "__metadata__.kafka_ingestion_ts"
    with pytest.raises(SinkError, match="declares no event_time"):
        window_column(schema(id="integer"), None, "plays")


def test_a_missing_client_names_the_extra() -> None:
    with pytest.raises(SetupError, match="package nothing_like_it is not installed") as caught:
        client("nothing_like_it.cluster", "cassandra")
    assert caught.value.hint == "pip install 'rekappa[cassandra]'"


def test_secrets_do_not_show() -> None:
    services = (
        postgres.Postgres("h", 1, "d", "t", ("id",), None, "me", "hush"),
        cassandra.Cassandra(("h",), 1, "k", "t", ("id",), None, "me", "hush"),
        opensearch.OpenSearch("http://h", "i", ("id",), None, "me", "hush"),
    )
    for service in services:
        assert "hush" not in repr(service)
        assert pickle.loads(pickle.dumps(service)) == service


def test_types_go_there_and_back() -> None:
    for kind in ("int", "bigint", "double", "boolean", "string", "binary", "date", "timestamp", "decimal(12,2)"):
        assert postgres.spark_type(postgres.column_type(kind)) == kind
    assert postgres.column_type("struct<a:int>") == "jsonb"
    assert cassandra.column_type("decimal(12,2)") == "decimal"


def test_documents_have_the_same_id_for_the_same_key() -> None:
    row = {"id": 7, "at": datetime(2026, 11, 1, 8, tzinfo=UTC), "day": date(2026, 11, 1), "sum": Decimal("1.50")}
    assert opensearch.document_id(("id",), row) == "7"
    assert opensearch.document_id(("id", "at", "day"), row) == '[7, "2026-11-01T08:00:00Z", "2026-11-01"]'
    assert len(opensearch.document_id(("text",), {"text": "東" * 400})) == 64


def test_partition_folders_become_sql() -> None:
    assert partition_spec("day=2026-11-01/who=o%27neil") == "`day` = '2026-11-01', `who` = 'o\\'neil'"
    assert partition_spec("day=__HIVE_DEFAULT_PARTITION__") == "`day` = NULL"


def test_batches_have_names_that_file_systems_take() -> None:
    assert folder_name(BatchId("run 1", "a/b", 3)) == "run_1-a_b-3"
    assert str(BatchId("r", "q", 3)) == "r/q/3"


def test_a_broken_rule_becomes_a_clear_error() -> None:
    error = RuntimeError(f"[USER_RAISED_EXCEPTION] {MARK}key column id is null SQLSTATE: P0001\nat line 1")
    said = refused(error, "plays")
    assert str(said) == "Cannot write sink 'plays': key column id is null"
    other = ValueError("no")
    assert refused(other, "plays") is other


def test_staging_expires_after_its_retention() -> None:
    written = datetime(2026, 11, 1, tzinfo=UTC)
    table = StagingTable("t", "app", "run", "sink", "staging", written, 1, 1)
    assert not table.expired(timedelta(days=7), written + timedelta(days=6))
    assert table.expired(timedelta(days=7), written + timedelta(days=7))


def test_a_backtick_in_a_column_s_name_is_doubled() -> None:
    from pyspark.sql.types import IntegerType, StructType

    from rekappa.sinks.fit import columns_ddl, columns_of

    made = StructType().add("ba`ck", IntegerType()).add("order", IntegerType())
    assert columns_ddl(columns_of(made)) == "`ba``ck` int, `order` int"


def test_no_partitions_is_a_choice_of_its_own() -> None:
    from rekappa.config.model import IcebergSink

    told = {"type": "iceberg", "table": "lake.a.b", "event_time": "at"}
    assert IcebergSink.model_validate(told).partition_by is None
    assert IcebergSink.model_validate({**told, "partition_by": []}).partition_by == ()
