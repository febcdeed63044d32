"""Kafka: one JSON message per row, with headers that tell run, query and batch, by which readers know what counts
(`rekappa.fence`). A run is announced in the lineage topic before its first message.

Before a batch, the sink notes under the storage root where the topic ends. A retry of that batch reads what is there
from that point on, and sends only the messages that are missing. What this can't cover: a retry with another storage
root, or while a task of the killed run still sends; then messages may appear twice, with equal headers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rekappa.errors import SinkError
from rekappa.fence.filter import counting
from rekappa.fence.line import BATCH, QUERY, RUN, Sender
from rekappa.fence.topic import LineageTopic
from rekappa.rate import paced
from rekappa.sinks.contract import BatchId, Rerun, Sink, in_window
from rekappa.sinks.fit import require_columns
from rekappa.sinks.parquet import folder_name
from rekappa.sources.kafka import for_librdkafka
from rekappa.spark.computing import compute
from rekappa.spark.names import quoted

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from rekappa.storage.location import Location
    from rekappa.timeline import Window

_TIMES = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}


class KafkaSink(Sink):
    rerun = Rerun.APPEND_ONLY

    def __init__(
        self,
        name: str,
        topic: str,
        options: dict[str, str],
        notes: Location,
        key: tuple[str, ...] = (),
        event_time: str | None = None,
    ) -> None:
        self.name = name
        self.topic = topic
        self.key = key
        self.event_time = event_time
        self._options = options
        self._notes = notes
        self._schema: StructType | None = None
        self._begun: set[Sender] = set()

    @property
    def lineage(self) -> LineageTopic:
        """Where it is said which messages of the topic count."""
        told = {name.removeprefix("kafka."): value for name, value in self._options.items()}
        return LineageTopic(for_librdkafka(told))

    def expect(self, schema: StructType) -> None:
        self._schema = schema

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        require_columns(schema, self.key, "key", self.name)
        require_columns(schema, (self.event_time,) if self.event_time else (), "event_time", self.name)
        self.expect(schema)
        jvm: Any = spark._jvm
        admin = _Admin(jvm, self._options)
        try:
            admin.create(self.topic)
        finally:
            admin.close()

    def write(self, rows: DataFrame, batch: BatchId) -> None:
        from pyspark.sql import functions as F

        spark = rows.sparkSession
        note = self._notes / f"{folder_name(BatchId(batch.run, batch.query, 0))[:-2]}.json"
        known = json.loads(note.read_text()) if note.exists() else None
        if known is not None and known["batch"] > batch.number:
            compute(rows)
            return
        self._begin((batch.run, batch.query))
        messages = self._messages(rows)
        if known is not None and known["batch"] == batch.number:
            messages = messages.exceptAll(self._sent(spark, known["end"], batch))
        else:
            note.write(json.dumps({"version": 1, "batch": batch.number, "end": self.ends(spark)}))
        header = [(RUN, batch.run), (QUERY, batch.query), (BATCH, str(batch.number))]
        headers = F.array(
            *(F.struct(F.lit(key).alias("key"), F.lit(value).cast("binary").alias("value")) for key, value in header)
        )
        sent = paced(messages.withColumn("headers", headers), self.pace(spark))
        sent.write.format("kafka").options(**self._options).option("topic", self.topic).save()

    def _begin(self, sender: Sender) -> None:
        if sender not in self._begun:
            self.lineage.begin(self.topic, sender)
            self._begun.add(sender)

    def _messages(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        whole = F.to_json(
            F.struct(*(F.col(quoted(name)) for name in rows.columns)), {"ignoreNullFields": "false", **_TIMES}
        )
        key = F.lit(None).cast("string")
        if len(self.key) == 1:
            key = F.col(self.key[0]).cast("string")
        elif self.key:
            key = F.to_json(F.struct(*(F.col(quoted(name)) for name in self.key)), _TIMES)
        return rows.select(key.cast("binary").alias("key"), whole.cast("binary").alias("value"))

    def _sent(self, spark: SparkSession, since: dict[str, int], batch: BatchId) -> DataFrame:
        """The messages of this batch that an earlier attempt sent."""
        from pyspark.sql import functions as F

        found = self.load(spark, startingOffsets=json.dumps({self.topic: since}))
        for header, value in ((RUN, batch.run), (QUERY, batch.query), (BATCH, str(batch.number))):
            found = found.where(F.exists("headers", _is(header, value)))
        return found.select("key", "value")

    def load(self, spark: SparkSession, **starting: str) -> DataFrame:
        """The topic's messages as Spark reads them, with headers: all, unless an option says where to start."""
        reader = spark.read.format("kafka").options(**self._options).option("subscribe", self.topic)
        return reader.options(**starting or {"startingOffsets": "earliest"}).option("includeHeaders", "true").load()

    def ends(self, spark: SparkSession) -> dict[str, int]:
        """Where each partition of the topic ends; empty if there is no such topic."""
        admin = _Admin(spark._jvm, self._options)
        try:
            return admin.ends(self.topic)
        finally:
            admin.close()

    def may_lack(self, spark: SparkSession, since: datetime) -> dict[int, int]:
        """The partitions of which Kafka may have dropped messages that were sent since then, and where each begins now.

        Of a compacted topic any message may be gone; of another one all that are older than what is there.
        """
        admin = _Admin(spark._jvm, self._options)
        try:
            starts, ends = admin.starts(self.topic), admin.ends(self.topic)
            newer = admin.starts(self.topic, since)
            compacted = bool(starts) and admin.compacts(self.topic)
        finally:
            admin.close()
        return {
            int(number): first
            for number, first in starts.items()
            if compacted or (first > 0 and newer[number] == (-1 if first == ends[number] else first))
        }

    def read(self, spark: SparkSession, window: Window | None = None) -> DataFrame | None:
        """The messages that count, as rows; None until the sink was told its columns (`prepare` or `expect`).

        A topic that does not exist holds nothing; one that can't be read is an error.
        """
        from pyspark.sql import functions as F

        if self._schema is None:
            return None
        if not self.ends(spark):
            return spark.createDataFrame([], self._schema)
        value = F.from_json(F.col("value").cast("string"), self._schema, _TIMES)
        counts = counting(F.col("headers"), self.lineage.fence(self.topic))
        rows = self.load(spark).where(counts).select(value.alias("row")).select("row.*")
        return in_window(rows, self.event_time, window, self.name)


def _is(header: str, value: str) -> Any:
    from pyspark.sql import functions as F

    return lambda one: (one["key"] == F.lit(header)) & (one["value"] == F.lit(value).cast("binary"))


@contextmanager
def _asking(what: str, topic: str) -> Iterator[None]:
    """What the broker refuses, in one line."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        reason = str(error.java_exception.getMessage()).splitlines()[0]
        raise SinkError(f"Cannot {what} Kafka topic {topic!r}: {reason}") from None


class _Admin:
    """Kafka's Java admin client, which takes the same settings as Spark's Kafka source."""

    def __init__(self, jvm: Any, options: dict[str, str]) -> None:
        settings = jvm.java.util.Properties()
        for option, value in options.items():
            if option.startswith("kafka."):
                settings.setProperty(option.removeprefix("kafka."), value)
        # A broker that is away should be said within seconds, not after Kafka's own minute.
        settings.setProperty("request.timeout.ms", "10000")
        settings.setProperty("default.api.timeout.ms", "20000")
        self._jvm = jvm
        self._admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)

    def _partitions(self, topic: str) -> int | None:
        if topic not in set(self._admin.listTopics().names().get()):
            return None
        described = self._admin.describeTopics([topic]).allTopicNames().get()
        return int(described.get(topic).partitions().size())

    def create(self, topic: str) -> None:
        """Create the topic with the broker's defaults unless it is there."""
        with _asking("prepare", topic):
            if self._partitions(topic) is None:
                none = self._jvm.java.util.Optional.empty()
                new = self._jvm.org.apache.kafka.clients.admin.NewTopic(topic, none, none)
                self._admin.createTopics([new]).all().get()

    def ends(self, topic: str) -> dict[str, int]:
        """Where each partition ends now; empty if there is no such topic."""
        return self._offsets(topic, self._jvm.org.apache.kafka.clients.admin.OffsetSpec.latest())

    def starts(self, topic: str, since: datetime | None = None) -> dict[str, int]:
        """Where each partition begins now, or what was sent since then, -1 for nothing; empty if there is no such
        topic."""
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
        asked = spec.earliest() if since is None else spec.forTimestamp(int(since.timestamp() * 1000))
        return self._offsets(topic, asked)

    def compacts(self, topic: str) -> bool:
        """Whether the topic keeps the newest message of a key alone."""
        with _asking("read", topic):
            config = self._jvm.org.apache.kafka.common.config.ConfigResource
            kind = self._jvm.java.lang.Class.forName("org.apache.kafka.common.config.ConfigResource$Type")
            (of_topics,) = (one for one in kind.getEnumConstants() if one.name() == "TOPIC")
            asked = config(of_topics, topic)
            found = self._admin.describeConfigs(self._jvm.java.util.List.of(asked)).all().get()
            return "compact" in str(found.get(asked).get("cleanup.policy").value())

    def _offsets(self, topic: str, spec: Any) -> dict[str, int]:
        with _asking("read", topic):
            count = self._partitions(topic)
            if count is None:
                return {}
            kind = self._jvm.org.apache.kafka.common.TopicPartition
            asked = {kind(topic, number): spec for number in range(count)}
            found = self._admin.listOffsets(self._jvm.java.util.HashMap(asked)).all().get()
            return {str(place.partition()): int(end.offset()) for place, end in dict(found).items()}

    def close(self) -> None:
        self._admin.close()
