"""The record of a service: every answer that a live run got, by key and time of the event, in an Iceberg table.

Answers come there in files (`rekappa.lookups.ledger`). Collecting them can be killed and repeated: what is there twice
is the same answer twice, and of several answers to one key and time the last one that a live run got counts. What is
not collected yet is read from the files.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.answers import ANSWER, KEY, TIME
from rekappa.config.lookups import ServiceLookup
from rekappa.config.model import AppConfig
from rekappa.errors import SourceError
from rekappa.home import Home
from rekappa.lookups.ledger import REPLAY, LedgerFile, forget_files, ledger_files
from rekappa.lookups.versions import kept_table
from rekappa.spark.names import quoted
from rekappa.timeline import Window, micros

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HORIZON = timedelta(minutes=10)
"""How long answers stay where a query of the same run that is behind finds them."""
_TRIES = 5
_LINES = "key STRING, moment BIGINT, answer STRING, asked BIGINT, live BOOLEAN"


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """Where the answers of one service are: `table`, and what is still in files."""

    table: str
    app: str
    lookup: str
    home: Home

    def read(self, spark: SparkSession, until: datetime | None = None, reach: Window | None = None) -> DataFrame:
        """One row of KEY, TIME and ANSWER for each key and time.

        `until` leaves out what was asked for later by a live run, `reach` the times that nobody asks for.
        """
        from pyspark.sql import functions as F

        rows = self._everything(spark)
        if until is not None:
            rows = rows.where((F.col("asked") <= F.timestamp_micros(F.lit(micros(until)))) | ~F.col("live"))
        if reach is not None:
            low, high = (F.timestamp_micros(F.lit(micros(one))) for one in (reach.start, reach.end))
            rows = rows.where((F.col("moment") >= low) & (F.col("moment") < high))
        held = F.max_by("answer", F.struct("live", "asked")).alias(ANSWER)
        return rows.groupBy(F.col("key").alias(KEY), F.unix_micros("moment").alias(TIME)).agg(held)

    def changed_answers(self, spark: SparkSession) -> int:
        """To how many keys and times live runs got several answers."""
        from pyspark.sql import functions as F

        rows = self._everything(spark).where("live").groupBy("key", "moment")
        return rows.agg(F.count_distinct("answer").alias("answers")).where("answers > 1").count()

    def first(self, spark: SparkSession) -> int | None:
        """The earliest time that an answer was kept under, in microseconds."""
        from pyspark.sql import functions as F

        found = self._everything(spark).agg(F.unix_micros(F.min("moment"))).collect()[0][0]
        return None if found is None else int(found)

    def collect(self, spark: SparkSession, horizon: timedelta = HORIZON) -> int:
        """Move files into the table that no task asks for any more; answers how many. Called by whoever writes them."""
        folder = self.home.answers(self.app, self.lookup)
        done = _settled(ledger_files(folder), micros(datetime.now(UTC) - horizon))
        if not done:
            return 0
        self._prepare(spark)
        self._lines(spark, done).writeTo(self.table).append()
        forget_files(folder, [one.name for one in done])
        for one in done:
            (folder / one.name).remove()
        return len(done)

    def _everything(self, spark: SparkSession) -> DataFrame:
        # The files first: what is collected between the two looks is then seen twice, not missed.
        left = self._left(spark)
        return left.unionByName(spark.table(self.table)) if spark.catalog.tableExists(self.table) else left

    def _left(self, spark: SparkSession) -> DataFrame:
        """What is in files now, read at once: they go when they are collected."""
        from pyspark.errors import PySparkException

        folder = self.home.answers(self.app, self.lookup)
        for _ in range(_TRIES):
            files = ledger_files(folder)
            try:
                return self._lines(spark, files).localCheckpoint()
            except PySparkException:
                if set(files) <= set(ledger_files(folder)):
                    raise
        raise SourceError(
            f"Cannot read what service {self.lookup!r} answered: its files in {folder} go faster than they are read",
            hint="Try again: a live run has just collected them.",
        )

    def _lines(self, spark: SparkSession, files: list[LedgerFile]) -> DataFrame:
        folder = self.home.answers(self.app, self.lookup)
        paths = [(folder / one.name).uri for one in files]
        rows = spark.read.schema(_LINES).json(paths) if paths else spark.createDataFrame([], _LINES)
        times = ("timestamp_micros(moment) AS moment", "answer", "timestamp_micros(asked) AS asked")
        return rows.selectExpr("key", *times, "live")

    def _prepare(self, spark: SparkSession) -> None:
        namespace = self.table.rsplit(".", 1)[0]
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {'.'.join(map(quoted, namespace.split('.')))}")
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {'.'.join(map(quoted, self.table.split('.')))} (key STRING, moment TIMESTAMP, "
            "answer STRING, asked TIMESTAMP, live BOOLEAN) USING iceberg PARTITIONED BY (days(moment))"
        )


def record_of(config: AppConfig, home: Home, name: str, lookup: ServiceLookup) -> AnswerRecord:
    return AnswerRecord(lookup.table or kept_table(config, name, lookup), config.app, name, home)


def collect_answers(spark: SparkSession, config: AppConfig, home: Home) -> int:
    """Collect for every service of the app that is recorded; answers how many files were moved."""
    found = {name: one for name, one in config.lookups.items() if isinstance(one, ServiceLookup) and one.record}
    return sum(record_of(config, home, name, one).collect(spark) for name, one in found.items())


def _settled(files: list[LedgerFile], before: int) -> list[LedgerFile]:
    """Files that are old, and not of the newest batch of their query, which may be run again."""
    newest: dict[str, int] = {}
    for one in files:
        newest[one.query] = max(one.batch, newest.get(one.query, 0))
    return [one for one in files if one.asked < before and (one.batch < newest[one.query] or one.query == REPLAY)]
