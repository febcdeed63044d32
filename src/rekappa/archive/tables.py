"""The archive's tables: their shape, their creation, their growth by new columns.

One table per source, and one table per app for messages that can't be decoded (or not wholly).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rekappa.config.model import AppConfig, Archive, IcebergCandidate, KafkaCandidate, Source
from rekappa.errors import ArchiveError, ConfigError
from rekappa.home import Home
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.upkeep import LASTING
from rekappa.record import INGESTION, METADATA, METADATA_TYPE, OFFSET, PARTITION, REGION
from rekappa.spark.names import quoted
from rekappa.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

    from rekappa.config.load import Loaded

# Small row groups, so that an hour's file can still be read a few minutes at a time.
ROW_GROUP_BYTES = 16 * 1024 * 1024
_WIDENS = {("int", "bigint"), ("float", "double")}
_SMALL = re.compile(r"\b(?:tinyint|smallint)\b")


@dataclass(frozen=True, slots=True)
class Route:
    """One source's way to its table. `topics` are its topic's names on the candidate's clusters, in their order."""

    app: str
    source_name: str
    source: Source
    kafka: KafkaCandidate
    topics: tuple[str, ...]
    table: str
    dead_letters: str

    @property
    def writer(self) -> str:
        """The name under which the router stamps its commits."""
        return f"archive:{self.app}:{self.source_name}"

    def checkpoint(self, home: Home) -> Location:
        """Where the router keeps its offsets: those of other clusters, topics or tables are of no use to it."""
        between = json.dumps([self.kafka.cluster, self.topics, self.table])
        name = f"{self.source_name}-{hashlib.sha256(between.encode()).hexdigest()[:12]}"
        return home.checkpoint(self.app, "archive") / name


def dead_letters_of(config: AppConfig) -> str:
    """The table of messages that are no events."""
    return config.archive.dead_letters or f"{config.default_catalog()}.{config.app.replace('-', '_')}.dead_letters"


def route_between(config: AppConfig, name: str, kafka: KafkaCandidate, table: str) -> Route:
    """The way of a source's topic to its table."""
    topics = tuple(config.cluster(cluster).topic(kafka.topic) for cluster in kafka.cluster)
    return Route(config.app, name, config.sources[name], kafka, topics, table, dead_letters_of(config))


def routes(loaded: Loaded, only: str | None = None) -> list[Route]:
    """Every source that has both a kafka and an iceberg candidate; `only` names one of them."""
    config = loaded.config
    found = []
    for name, source in config.sources.items():
        kafka = next((c for c in source.candidates.values() if isinstance(c, KafkaCandidate)), None)
        iceberg = next((c for c in source.candidates.values() if isinstance(c, IcebergCandidate)), None)
        if kafka is not None and iceberg is not None and only in (None, name):
            found.append(route_between(config, name, kafka, iceberg.table))
    if not found:
        if only is not None and only not in config.sources:
            hint = f"Sources of the app: {', '.join(config.sources)}."
            raise ConfigError(f"Cannot find source {only!r}", hint=hint)
        raise ArchiveError(
            f"Cannot archive {only or config.app!r}: no source with both a kafka and an iceberg candidate",
            hint="Add the missing candidate under sources in rekappa.yaml.",
        )
    return found


def quoted_table(table: str) -> str:
    return ".".join(quoted(part) for part in table.split("."))


def ddl(name: str, kind: DataType) -> str:
    return f"{quoted(name)} {kind.simpleString()}"


def exists(spark: SparkSession, table: str) -> bool:
    return bool(spark.catalog.tableExists(table))


def prepare_archive(spark: SparkSession, route: Route, payload: StructType, archive: Archive) -> StructType:
    """Create the table or add the columns that the configuration gained; answers its payload columns, those that
    only the table has at the end. Refuses a column whose type can't become the declared one."""
    if not exists(spark, route.table):
        _create(spark, route.table, payload, archive)
        return payload
    _looked_after(spark, route.table)
    present = {f.name: f for f in table_payload(spark, route.table).fields}
    folded = {name.lower(): name for name in present}
    missing: dict[str, DataType] = {}
    for field in payload.fields:
        same = folded.get(field.name.lower())
        if same is None:
            missing[field.name] = field.dataType
            continue
        old, new = present[same].dataType, field.dataType
        if _stored(old) == _stored(new) and same == field.name:
            continue
        if same == field.name and (old.simpleString(), new.simpleString()) in _WIDENS:
            spark.sql(f"ALTER TABLE {quoted_table(route.table)} ALTER COLUMN {quoted(same)} TYPE {new.simpleString()}")
            continue
        raise ArchiveError(
            f"Cannot archive source {route.source_name!r}: column {same!r} of {route.table} is {old.simpleString()}, "
            f"the schema says {field.name!r} {new.simpleString()}",
            hint="Declare the type that the table has, or archive to a new table.",
        )
    add_columns(spark, route.table, missing)
    now = {field.name: field for field in table_payload(spark, route.table).fields}
    from pyspark.sql.types import StructType

    extra = [field for name, field in now.items() if name not in payload.names]
    return StructType([*payload.fields, *extra])


def _stored(kind: DataType) -> str:
    """A type as Iceberg keeps it, which has no whole numbers of less than four bytes."""
    return _SMALL.sub("int", kind.simpleString())


def table_payload(spark: SparkSession, table: str) -> StructType:
    """The table's columns but `__metadata__`."""
    from pyspark.sql.types import StructType

    spark.sql(f"REFRESH TABLE {quoted_table(table)}")
    return StructType([field for field in spark.table(table).schema.fields if field.name != METADATA])


def add_columns(spark: SparkSession, table: str, columns: dict[str, Any]) -> None:
    """New nullable columns; adding none is nothing."""
    if columns:
        made = ", ".join(ddl(name, kind) for name, kind in columns.items())
        spark.sql(f"ALTER TABLE {quoted_table(table)} ADD COLUMNS ({made})")


def prepare_dead_letters(spark: SparkSession, table: str) -> None:
    """The table of what could not be decoded. `archived` is true where the event itself is in the archive and
    only a field that the schema does not declare could not be kept."""
    if exists(spark, table):
        _looked_after(spark, table)
        return
    _namespace(spark, table)
    properties = {"write.parquet.compression-codec": "zstd", "write.distribution-mode": "none", **LASTING}
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {quoted_table(table)} (source STRING, reason STRING, archived BOOLEAN, "
        f"value BINARY, {METADATA} {METADATA_TYPE}) USING iceberg PARTITIONED BY (days({INGESTION})) "
        f"TBLPROPERTIES ({_listed(properties)})"
    )


def _listed(properties: Mapping[str, str]) -> str:
    return ", ".join(f"'{key}'='{value}'" for key, value in properties.items())


def _looked_after(spark: SparkSession, table: str) -> None:
    """A table from before tables were looked after gets the rules of a new one; what somebody set stays."""
    present = load_table(spark, quoted_table(table)).properties()
    missing = {key: value for key, value in LASTING.items() if not present.containsKey(key)}
    if missing:
        spark.sql(f"ALTER TABLE {quoted_table(table)} SET TBLPROPERTIES ({_listed(missing)})")


def _namespace(spark: SparkSession, table: str) -> None:
    parts = table.split(".")
    if len(parts) < 3:
        raise ArchiveError(f"Cannot use table name {table!r}", hint="Write it as catalog.namespace.table.")
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {quoted_table('.'.join(parts[:-1]))}")


def _create(spark: SparkSession, table: str, payload: StructType, archive: Archive) -> None:
    _namespace(spark, table)
    properties = {
        "format-version": "2",
        "write.parquet.compression-codec": "zstd",
        "write.parquet.row-group-size-bytes": str(ROW_GROUP_BYTES),
        "write.target-file-size-bytes": str(archive.target_file_size_mb * 1024 * 1024),
        **LASTING,
        "write.metadata.metrics.default": "truncate(16)",
        **{f"write.metadata.metrics.column.{column}": "full" for column in (INGESTION, PARTITION, OFFSET, REGION)},
    }
    columns = ", ".join(ddl(field.name, field.dataType) for field in payload.fields)
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {quoted_table(table)} ({columns}, {METADATA} {METADATA_TYPE}) USING iceberg "
        f"PARTITIONED BY (hours({INGESTION}), {REGION}) TBLPROPERTIES ({_listed(properties)})"
    )
    # Each task sorts what it read: files come out sorted without a shuffle.
    spark.sql(f"ALTER TABLE {quoted_table(table)} WRITE LOCALLY ORDERED BY {INGESTION}, {PARTITION}, {OFFSET}")
    spark.sql(f"ALTER TABLE {quoted_table(table)} SET TBLPROPERTIES ('write.distribution-mode'='none')")
