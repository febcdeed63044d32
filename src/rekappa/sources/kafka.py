"""Live events from one Kafka cluster, or from several, one per region."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from rekappa.config.model import AppConfig, KafkaCandidate, Source
from rekappa.errors import SourceError
from rekappa.home import Home
from rekappa.record import METADATA
from rekappa.sources.decode import DECODED, decoder, is_event, metadata_type, payload_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from rekappa.config.load import Loaded

NUMBER = "__number__"
_JAAS = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')

_CERTIFICATES = {"ssl.truststore.location": "ssl.ca.location", "ssl.truststore.certificates": "ssl.ca.pem"}


def bootstrap(config: AppConfig, cluster_name: str, home: Home) -> str:
    """The cluster's address; `stack` is the broker that `rekappa up` started."""
    if cluster_name not in config.clusters:
        raise SourceError(
            f"Cannot find cluster {cluster_name!r}", hint=f"Clusters in rekappa.yaml: {', '.join(config.clusters)}."
        )
    address = config.cluster(cluster_name).bootstrap
    if address != "stack":
        return address
    from rekappa.stack.state import stack_state

    state = stack_state(home)
    if state is None:
        raise SourceError(
            f"Cannot reach cluster {cluster_name!r}: the local stack is not running", hint="Start it: rekappa up"
        )
    return state.bootstrap


def cluster_options(config: AppConfig, cluster_name: str, home: Home) -> dict[str, str]:
    """Spark's Kafka options for one cluster: its address and client settings, secrets revealed."""
    from rekappa.spark.session import plain

    options = {"kafka.bootstrap.servers": bootstrap(config, cluster_name, home)}
    for key, value in config.cluster(cluster_name).options.items():
        options[key if key.startswith("kafka.") else f"kafka.{key}"] = plain(value)
    return options


def client_options(config: AppConfig, cluster_name: str, home: Home) -> dict[str, str]:
    """The same cluster for confluent-kafka's clients."""
    options = cluster_options(config, cluster_name, home)
    return for_librdkafka({key.removeprefix("kafka."): value for key, value in options.items()})


def for_librdkafka(options: Mapping[str, str]) -> dict[str, str]:
    """The options of Kafka's Java client, which Spark uses, as confluent-kafka's library calls them.

    A login and certificates, in a file or written out, are said in other words there; what has no counterpart is left
    as it is.
    """
    told = dict(options)
    login = dict(_JAAS.findall(told.get("sasl.jaas.config", "")))
    if {"username", "password"} <= login.keys():
        del told["sasl.jaas.config"]
        told = {f"sasl.{name}": re.sub(r"\\(.)", r"\1", value) for name, value in login.items()} | told
    if told.get("ssl.truststore.type", "").upper() == "PEM":
        for java in _CERTIFICATES.keys() & told.keys():
            told.pop("ssl.truststore.type", None)
            told[_CERTIFICATES[java]] = told.pop(java)
    if told.get("ssl.endpoint.identification.algorithm") == "":
        told["ssl.endpoint.identification.algorithm"] = "none"
    return told


def messages(
    spark: SparkSession,
    config: AppConfig,
    home: Home,
    candidate: KafkaCandidate,
    *,
    starting: Sequence[str] = (),
    max_records: int | None = None,
) -> DataFrame:
    """The stream of raw messages of all clusters: Kafka's columns with headers, and `region`.

    `starting`, one entry per cluster, overrides where the candidate says to start.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    limit = max_records or candidate.max_records_per_batch
    streams = []
    for number, name in enumerate(candidate.cluster):
        reader = spark.readStream.format("kafka").options(**cluster_options(config, name, home))
        reader = reader.option("subscribe", config.cluster(name).topic(candidate.topic)).option(
            "includeHeaders", "true"
        )
        reader = reader.option("startingOffsets", starting[number] if starting else candidate.starting)
        if limit:
            reader = reader.option("maxOffsetsPerTrigger", str(max(1, limit // len(candidate.cluster))))
        streams.append(reader.load().withColumn("region", F.lit(config.cluster(name).region)))
    return reduce(DataFrame.unionByName, streams)


def metadata() -> Column:
    """`__metadata__` from Kafka's columns, nullable like everything in the record."""
    from pyspark.sql import functions as F

    names = {"kafka_ingestion_ts": "timestamp"}
    fields = [F.col(names.get(f.name, f.name)).cast(f.dataType).alias(f.name) for f in metadata_type().fields]
    # A struct is never null; under a condition it may be, which makes the column nullable as it is elsewhere.
    return F.when(F.lit(1) == F.lit(1), F.struct(*fields).cast(metadata_type())).alias(METADATA)


def records(raw: DataFrame, loaded: Loaded, source: Source) -> DataFrame:
    """Events in the record shape; what can't be decoded is left out."""
    from pyspark.sql import functions as F

    payload = payload_type(source, loaded.folder)
    value = F.col("value")
    # A filter, ours or the job's, that is pushed below the decoding parses each message once more. Spark does not
    # push it below a column that is not deterministic, as long as something above needs that column.
    number = F.spark_partition_id().alias(NUMBER)
    read = raw.select("value", metadata(), decoder(loaded, source).decode(value, payload).alias(DECODED), number)
    events = read.where(is_event(value, F.col(DECODED)) & (F.col(NUMBER) >= 0))
    return events.select(*[F.col(DECODED)[name].alias(name) for name in payload.names], METADATA)
