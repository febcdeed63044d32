"""Writing one micro-batch of messages into the archive, exactly once.

The fast way is one pass: decode, sort, append. It counts what did not pass: messages that the schema does not
fit, and messages with fields that the table does not have. Only when there are any is the batch read again,
for the slow way: undecodable messages go to the dead letters, new fields become columns.

    kill -9 at any point: every commit carries the batch's number, and a commit that is there is not made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import add, and_
from typing import TYPE_CHECKING, Any

from rekappa.archive import fields
from rekappa.archive.tables import Route, add_columns, quoted_table, table_payload
from rekappa.iceberg.commits import BATCH, WRITER, last_batch, load_table, stamp
from rekappa.iceberg.history import ancestors
from rekappa.iceberg.past import rows_at
from rekappa.record import METADATA, OFFSET, PARTITION, REGION, TOPIC
from rekappa.sources.decode import DECODED, Decoder, column_type, is_event
from rekappa.sources.kafka import metadata

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

NEW_FIELDS = ":new-fields"
DEAD = "dead:"
REGULAR = "__regular__"


class BatchWriter:
    """Writes the batches of one route. `columns` are the table's payload columns, the declared ones first.
    `writer` is the name for its commits: one checkpoint's, since batches are numbered anew with a new one.
    `check` is called before each commit and raises if this process may not write any more."""

    def __init__(
        self,
        route: Route,
        writer: str,
        decoder: Decoder,
        declared: StructType,
        columns: StructType,
        evolve: bool,
        check: Callable[[], None],
    ) -> None:
        self.route, self.writer, self._decoder = route, writer, decoder
        self.declared, self.columns = declared, columns
        self._evolve = evolve and decoder.names_fields
        self._checked = False
        self._check = check

    def write(self, raw: DataFrame, number: int, extra: Mapping[str, str]) -> None:
        """Write one batch; repeating it changes nothing. `extra` goes into the summary of its commit."""
        spark = raw.sparkSession
        # A batch can only be half written when the process before this one died in it.
        done = set() if self._checked else _committed(spark, self.route, self.writer, number)
        self._checked = True
        odd = True
        if self.writer not in done:
            odd = self._regular(raw, number, extra)
        if odd:
            self._odd(raw, number, done)

    def _regular(self, raw: DataFrame, number: int, extra: Mapping[str, str]) -> bool:
        """Append what passes the fast way; answers whether anything did not."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        passing = Observation()
        value, read = F.col("value"), F.col(DECODED)
        decoded = raw.select("value", metadata(), self._decoder.decode(value, self.columns).alias(DECODED))
        made = [read[name].alias(name) for name in self.columns.names]
        rows = decoded.select(*made, METADATA, self._is_regular(value, read).alias(REGULAR))
        # The observation also keeps the filter above the decoding: pushed below, it would parse each message again.
        rows = rows.observe(passing, F.count_if(~F.col(REGULAR)).alias("odd"))
        rows = rows.where(REGULAR).drop(REGULAR)
        self._append(rows, self.route.table, self.writer, number, extra)
        return bool(passing.get["odd"])

    def _odd(self, raw: DataFrame, number: int, done: set[str]) -> None:
        """The slow way, for what did not pass."""
        from pyspark.sql import functions as F

        spark, route, value = raw.sparkSession, self.route, F.col("value")
        # Found and decoded for good where a second look may differ: the table that it is told by is about to change, or
        # a registry may have learned an id meanwhile.
        once = self.writer in done or not self._decoder.repeatable
        if once:
            odd = _not_archived(raw.select("value", metadata()), route, self.writer, number)
        else:
            read = raw.select("value", metadata(), self._decoder.decode(value, self.columns).alias(DECODED))
            odd = read.where(~self._is_regular(value, F.col(DECODED))).select("value", METADATA)
        odd = odd.withColumn(DECODED, self._decoder.decode(value, self.declared))
        odd = odd.localCheckpoint() if once else odd.persist()
        try:
            sound = odd.where(is_event(value, F.col(DECODED)))
            if self._evolve:
                self._grow(spark, sound)
            if DEAD + self.writer not in done:
                self._bury(odd, number)
            if self.writer + NEW_FIELDS not in done:
                self._append_sound(sound, number)
        finally:
            odd.unpersist()

    def _append_sound(self, sound: DataFrame, number: int) -> None:
        from pyspark.sql import functions as F

        declared = set(self.declared.names)
        whole = self._decoder.decode(F.col("value"), self.columns)
        rows = sound.withColumn("__whole__", whole).select(
            *[F.col(DECODED if name in declared else "__whole__")[name].alias(name) for name in self.columns.names],
            METADATA,
        )
        self._append(rows, self.route.table, self.writer + NEW_FIELDS, number, {})

    def _grow(self, spark: SparkSession, sound: DataFrame) -> None:
        """Give the table a column for each field it does not have yet."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import MapType, StringType, StructType

        known, decoder = frozenset(self.columns.names), self._decoder
        look = F.udf(
            lambda value: fields.unknown_fields(decoder.body_of(value), known), MapType(StringType(), StringType())
        )
        seen = sound.select(F.explode(look("value")).alias("name", "kind")).distinct().collect()
        kinds: dict[str, set[str]] = {}
        for row in seen:
            kinds.setdefault(row["name"], set()).add(row["kind"])
        taken = {name.lower() for name in (*known, METADATA)}
        grown: dict[str, Any] = {}
        for name in sorted(kinds):
            # No column can have a name with a dot, or one that differs from another in case alone; such a field is
            # kept in the dead letters.
            if name and "." not in name and name.lower() not in taken:
                taken.add(name.lower())
                grown[name] = column_type(fields.merged(kinds[name]))
        if grown:
            add_columns(spark, self.route.table, grown)
            now = table_payload(spark, self.route.table)
            added = [field for field in now.fields if field.name not in known]
            self.columns = StructType([*self.columns.fields, *added])

    def _bury(self, odd: DataFrame, number: int) -> None:
        """Dead letters: what is no event, and events of which a field that nobody declared could not be kept."""
        from pyspark.sql import functions as F

        route, value, decoder, evolve = self.route, F.col("value"), self._decoder, self._evolve
        declared = {field.name: field.dataType.simpleString() for field in self.declared.fields}
        extra = {f.name: f.dataType.simpleString() for f in self.columns.fields if f.name not in declared}
        known = frozenset(self.columns.names)

        def why(message: bytes | None, sound: bool, said: str | None) -> str | None:
            body = decoder.body_of(message)
            if not sound:
                return said or fields.reason(body, declared)
            if not evolve:
                return None
            lost = fields.misfits(body, extra)
            lost += [f"field {n!r}: no column can have this name" for n in fields.unknown_fields(body, known)]
            return "; ".join(lost) or None

        read = odd.withColumn("archived", is_event(value, F.col(DECODED)))
        told = F.udf(lambda message, sound, said: why(message, sound, said), "string")
        letters = read.select(
            F.lit(route.source_name).alias("source"),
            told("value", "archived", decoder.said(F.col(DECODED))).alias("reason"),
            "archived",
            "value",
            METADATA,
        ).where("reason IS NOT NULL")
        self._append(letters, route.dead_letters, DEAD + self.writer, number, {})

    def _append(self, rows: DataFrame, table: str, writer: str, number: int, extra: Mapping[str, str]) -> None:
        self._check()
        options = stamp(writer, number) | {f"snapshot-property.{key}": value for key, value in extra.items()}
        # What is sorted by partition first needs only one open file at a time.
        rows.writeTo(quoted_table(table)).options(**options, **{"fanout-enabled": "false"}).append()

    def _is_regular(self, value: Column, read: Column) -> Column:
        """Whether the message is an event without fields that the table does not have; never null."""
        from pyspark.sql import functions as F

        passes = is_event(value, read)
        if not self._evolve:
            return passes
        # Looking at the keys parses the message once more. An object has at most one field more than the text has
        # commas: where that many columns have a value, there is no room for another field.
        text = self._decoder.body(value).cast("string")
        most = F.octet_length(text) - F.octet_length(F.replace(text, F.lit(","))) + 1
        filled = reduce(add, [read[name].isNotNull().cast("int") for name in self.columns.names])
        known = F.array(*[F.lit(name) for name in self.columns.names])
        none_new = F.size(F.array_except(F.json_object_keys(text), known)) == 0
        return passes & F.when(most <= filled, True).otherwise(F.coalesce(none_new, F.lit(False)))


def _not_archived(messages: DataFrame, route: Route, writer: str, number: int) -> DataFrame:
    """What the batch's first commit left out. The columns that the table had when it was made may have been fewer than
    now, so that what was odd then can't be told by looking at the messages."""
    from pyspark.sql import functions as F

    spark = messages.sparkSession
    names = {"__r": REGION, "__t": TOPIC, "__p": PARTITION, "__o": OFFSET}
    held = _added(spark, route.table, writer, number).select(*[F.col(path).alias(name) for name, path in names.items()])
    same = reduce(and_, [F.col(path) == F.col(name) for name, path in names.items()])
    return messages.join(held, same, "left_anti")


def _added(spark: SparkSession, table: str, writer: str, number: int) -> DataFrame:
    """The rows that the writer's commit of the batch brought."""
    for snapshot in ancestors(load_table(spark, quoted_table(table))):
        summary = snapshot.summary()
        if (summary.get(WRITER), summary.get(BATCH)) == (writer, str(number)):
            parent = snapshot.parentId()
            if parent is None:
                return rows_at(spark, table, snapshot.snapshotId())
            between = {"start-snapshot-id": parent, "end-snapshot-id": snapshot.snapshotId()}
            return spark.read.format("iceberg").options(**between).load(table)
    # Its snapshot has expired: the table has them among all others.
    return spark.table(table)


def _committed(spark: SparkSession, route: Route, writer: str, number: int) -> set[str]:
    """Which of this writer's commits of the batch are there: those were made before a crash."""
    tables = {writer: route.table, writer + NEW_FIELDS: route.table, DEAD + writer: route.dead_letters}
    last = {name: last_batch(spark, quoted_table(table), name) for name, table in tables.items()}
    return {name for name, batch in last.items() if batch is not None and batch >= number}
