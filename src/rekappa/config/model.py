"""What `rekappa.yaml` may say, typed. Unknown keys are refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from rekappa.config.fields import Duration, Float, Int, Model, Names, Options
from rekappa.config.lookups import LookupTable


def _output_mode(value: Any) -> Any:
    if value == "complete":
        raise ValueError(
            "complete writes every row again in every batch, which no window of a replay can hold; "
            "use update with a sink that upserts by key"
        )
    return value


OutputMode = Annotated[Literal["append", "update"], BeforeValidator(_output_mode)]


class Cluster(Model):
    """A Kafka cluster. `bootstrap: stack` is the broker that `rekappa up` started.

    `topic_prefix` serves clusters that hold mirrored topics under other names, such as `eu.plays`.
    """

    bootstrap: str = Field(min_length=1, description="Its brokers, host:port, or `stack`, which `rekappa up` starts.")
    region: str = "local"
    topic_prefix: str = ""
    options: Options = Field(default={})

    @model_validator(mode="after")
    def _loses_nothing(self) -> Self:
        for key in self.options:
            if key.lower().removeprefix("kafka.") == "failondataloss":
                raise ValueError(
                    f"{key} can't be set: events that Kafka has dropped are read from the archive, or refused; never "
                    "passed over"
                )
        return self

    def topic(self, name: str) -> str:
        """The topic's name on this cluster."""
        return self.topic_prefix + name


class Catalog(Model):
    """An Iceberg catalog. `type: stack` is the local one in the project folder."""

    type: Literal["stack", "jdbc", "rest", "hadoop", "hive", "glue"] = "stack"
    uri: str | None = None
    warehouse: str | None = None
    options: Options = Field(default={})


class Registry(Model):
    """A schema registry that speaks Confluent's API. `options` are named as Confluent's own clients name them."""

    url: str = Field(min_length=1, description="Its address, with the path at which its API begins.")
    options: Options = Field(default={})


class Format(Model):
    """How an event's bytes are written; `format: avro` is short for `{type: avro}`.

    With a registry, messages begin with the id of the schema that they were written with. `subject` is where
    `rekappa produce` finds the schema to write with: `<topic>-value` unless told otherwise.
    """

    type: Literal["json", "avro", "protobuf"] = "json"
    registry: str | None = None
    subject: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"type": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _needs_registry(self) -> Self:
        if self.registry is None and self.type == "protobuf":
            raise ValueError("protobuf needs a registry, which has the schema: {type: protobuf, registry: NAME}")
        if self.registry is None and self.subject is not None:
            raise ValueError("subject needs a registry: {type: …, registry: NAME, subject: …}")
        return self


class KafkaCandidate(Model):
    """Live events. Several clusters, one per region, may stand behind one source."""

    type: Literal["kafka"]
    cluster: Names = ("main",)
    topic: str
    starting: Literal["earliest", "latest"] = "earliest"
    max_records_per_batch: Int | None = Field(default=None, gt=0)


class IcebergCandidate(Model):
    """The archive: read over a window by a backfill or, with `follow`, continuously."""

    type: Literal["iceberg"]
    table: str
    max_misalignment: Duration = timedelta(minutes=15)
    follow: bool = False


class HiveCandidate(Model):
    """A Hive table that holds past events; `where` may name its partition columns."""

    type: Literal["hive"]
    database: str
    table: str
    where: str | None = None
    max_misalignment: Duration = timedelta(minutes=15)


Candidate = Annotated[KafkaCandidate | IcebergCandidate | HiveCandidate, Field(discriminator="type")]


class SchemaFile(Model):
    """An Avro schema (.avsc) or Spark DDL (.ddl) beside rekappa.yaml."""

    file: str


class Source(Model):
    """`clock_skew` is how far an event's time may be ahead of its ingestion: every backfill reads that much more."""

    schema_: str | SchemaFile = Field(alias="schema")
    format: Format = Format()
    event_time: str
    clock_skew: Duration = Field(default=timedelta(minutes=1), ge=timedelta(), le=timedelta(days=3660))
    selected: str = "live"
    candidates: dict[str, Candidate] = Field(min_length=1)


class SinkBase(Model):
    """What all sinks share. `job` is the output it takes: its own name unless told otherwise.

    `output_mode` is Spark's, of the query that writes the sink. `version` is the column that says which of two rows
    of one key is the newer one, whichever comes first; without it the one that is written later stays. `deletes` is a
    BOOLEAN column that is not stored: a row in which it is true removes the row of its key. `expect` says what a
    backfill may change by its code, `late` whether rows that production lacks because it dropped events as late
    may be published. With `evolve` a live run gives the table the columns that its job has gained.
    """

    compares: ClassVar[bool] = False
    """Whether the sink can compare a row with the one it holds before it writes, as a version needs it."""

    job: str | None = None
    key: Names = ()
    event_time: str | None = None
    output_mode: OutputMode = "append"
    version: str | None = None
    deletes: str | None = None
    max_rows_per_second: Float | None = Field(default=None, gt=0)
    expect: str | None = None
    late: Literal["keep", "drop"] = "keep"
    evolve: bool = False

    @property
    def upserts(self) -> bool:
        """Whether a row replaces the one that has its key."""
        return False

    @model_validator(mode="after")
    def _updates_need_upserts(self) -> Self:
        told = [name for name in ("output_mode", "version", "deletes") if getattr(self, name) not in ("append", None)]
        if told and not self.upserts:
            raise ValueError(
                f"{told[0]}: {getattr(self, told[0])} needs a sink that upserts by key: iceberg with mode: upsert, "
                "postgres, cassandra or opensearch"
            )
        if self.version is not None and not self.compares:
            raise ValueError("version needs a sink that compares before it writes: iceberg with mode: upsert, postgres")
        if self.deletes is not None and self.version is not None:
            raise ValueError(
                "deletes and version exclude each other: a row that was removed leaves no version to compare with, so "
                "an older change that comes late would bring it back"
            )
        if self.deletes is not None and self.deletes in (*self.key, self.event_time):
            raise ValueError(f"deletes: {self.deletes} is not stored, so it can be neither key nor event_time")
        if self.version in self.key:
            raise ValueError(f"version: {self.version} is part of the key, so it is the same for all rows of a key")
        return self


class KeepsNothing(SinkBase):
    """A sink whose rows are gone once written: there is nothing that a later row of a key could contradict."""

    compares: ClassVar[bool] = True

    @property
    def upserts(self) -> bool:
        return bool(self.key) and (self.output_mode == "update" or bool(self.version or self.deletes))


class ConsoleSink(KeepsNothing):
    type: Literal["console"]
    rows: Int = Field(default=20, ge=0)


class NullSink(KeepsNothing):
    type: Literal["null"]


class ParquetSink(SinkBase):
    type: Literal["parquet"]
    path: str


class IcebergSink(SinkBase):
    """`mode` is upsert where a key is given: a row replaces the one that has its key. A sink whose job writes each row
    once may say `append` all the same, which is cheaper; its key then only tells rows apart."""

    compares: ClassVar[bool] = True

    type: Literal["iceberg"]
    table: str
    mode: Literal["append", "upsert"] = "append"
    partition_by: Names | None = None

    @model_validator(mode="before")
    @classmethod
    def _key_means_upsert(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("key") and value.get("mode") is None:
            return {**value, "mode": "upsert"}
        return value

    @property
    def upserts(self) -> bool:
        return self.mode == "upsert"

    @model_validator(mode="after")
    def _upsert_needs_key(self) -> IcebergSink:
        if self.mode == "upsert" and not self.key:
            raise ValueError("mode: upsert needs a key, for example  key: [id]")
        return self


class HiveSink(SinkBase):
    type: Literal["hive"]
    database: str
    table: str
    partition_by: Names


class KafkaSink(SinkBase):
    type: Literal["kafka"]
    cluster: str = "main"
    topic: str


class KeyedSink(SinkBase):
    """A sink that upserts by key into a service."""

    @property
    def upserts(self) -> bool:
        return True

    @model_validator(mode="after")
    def _needs_key(self) -> KeyedSink:
        if not self.key:
            raise ValueError("this sink upserts and needs a key, for example  key: [id]")
        return self


class PostgresSink(KeyedSink):
    compares: ClassVar[bool] = True

    type: Literal["postgres"]
    host: str = "127.0.0.1"
    port: Int = 5432
    database: str
    table: str
    user: str | None = None
    password: SecretStr | None = None


class CassandraSink(KeyedSink):
    type: Literal["cassandra"]
    hosts: Names = ("127.0.0.1",)
    port: Int = 9042
    keyspace: str
    table: str
    user: str | None = None
    password: SecretStr | None = None


class OpenSearchSink(KeyedSink):
    """OpenSearch, and Elasticsearch through its compatible API."""

    type: Literal["opensearch"]
    url: str
    index: str
    user: str | None = None
    password: SecretStr | None = None


Sink = Annotated[
    ConsoleSink | NullSink | ParquetSink | IcebergSink | HiveSink | KafkaSink | PostgresSink | CassandraSink
    | OpenSearchSink,
    Field(discriminator="type"),
]  # fmt: skip
PLAIN = ""
"""The name of the only candidate of a sink that is written without candidates."""


class SinkChoice(Model):
    """A sink as it is written: its candidates, and the one that is selected.

    The plain form, `{type: iceberg, table: …}`, is one candidate without a name. The one that the file selects is
    production; a run that is told another by --set or the environment writes elsewhere.
    """

    selected: str = "production"
    candidates: dict[str, Sink] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _name_plain(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "candidates" in value:
            return value
        only = {key: setting for key, setting in value.items() if key != "selected"}
        return {"selected": value.get("selected", PLAIN), "candidates": {PLAIN: only}}

    @property
    def plain(self) -> bool:
        return PLAIN in self.candidates

    @property
    def sink(self) -> Sink:
        """The candidate that is selected."""
        return self.candidates[self.selected]

    @classmethod
    def of(cls, sink: Sink) -> Self:
        """The plain form of a sink."""
        return cls(selected=PLAIN, candidates={PLAIN: sink})


class Archive(Model):
    """How the router writes: one Iceberg table per source's iceberg candidate."""

    trigger: Duration = timedelta(minutes=1)
    max_records_per_batch: Int | None = Field(default=None, gt=0)
    target_file_size_mb: Int = Field(default=128, gt=0)
    dead_letters: str | None = None
    evolve: bool = True


class Prices(Model):
    """Dollars; the defaults are list prices of one public cloud, to be replaced by yours."""

    currency: str = "USD"
    kafka_gb_month: Float = Field(default=0.10, ge=0)
    kafka_replication: Int = Field(default=3, ge=1)
    archive_gb_month: Float = Field(default=0.023, ge=0)


class Profile(Model):
    """Settings of one kind of run. Every key that starts with `spark.` goes to Spark as it is."""

    master: str = "local[*]"
    trigger: Duration | None = None
    max_rows_per_second: Float | None = Field(default=None, gt=0)
    environment: str | None = None
    """A packed Python environment for the executors of a cluster; a local master uses the driver's own."""
    spark: Options = Field(default={})

    @model_validator(mode="before")
    @classmethod
    def _collect_spark(cls, value: Any) -> Any:
        if not isinstance(value, dict) or not isinstance(value.get("spark") or {}, dict):
            return value
        loose = {key: setting for key, setting in value.items() if str(key).startswith("spark.")}
        rest = {key: setting for key, setting in value.items() if key not in loose}
        return {**rest, "spark": {**loose, **(rest.get("spark") or {})}}


class Profiles(Model):
    live: Profile = Profile()
    backfill: Profile = Profile()
    archive: Profile = Profile()


class AppConfig(Model):
    """One app's whole configuration. `owner` is who answers for it: a person, a team, an address."""

    app: str = Field(pattern=r"^[a-z][a-z0-9_-]*$")
    entry: str = "app.py"
    owner: str | None = None
    clusters: dict[str, Cluster] = Field(default={"main": Cluster(bootstrap="stack")})
    catalogs: dict[str, Catalog] = Field(default={"lake": Catalog()}, min_length=1)
    registries: dict[str, Registry] = Field(default={})
    sources: dict[str, Source] = Field(min_length=1)
    lookups: dict[str, LookupTable] = Field(default={})
    choices: dict[str, SinkChoice] = Field(alias="sinks", min_length=1)
    archive: Archive = Archive()
    profiles: Profiles = Profiles()
    prices: Prices = Prices()
    staging_retention: Duration = timedelta(days=7)
    history_retention: Duration = timedelta(days=90)

    @property
    def sinks(self) -> dict[str, Sink]:
        """Of every sink the candidate that is selected."""
        return {name: choice.sink for name, choice in self.choices.items()}

    def with_sinks(self, sinks: Mapping[str, Sink]) -> Self:
        """The same app with these sinks in place of its own."""
        return self.model_copy(update={"choices": {name: SinkChoice.of(sink) for name, sink in sinks.items()}})

    def cluster(self, name: str) -> Cluster:
        return self.clusters[name]

    def default_catalog(self) -> str:
        return next(iter(self.catalogs))
