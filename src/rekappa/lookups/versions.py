"""Where the versions of a lookup's rows are, whatever kind of lookup it is, and reading them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rekappa.config.lookups import ChangesLookup, IcebergLookup, LookupTable
from rekappa.config.model import AppConfig, IcebergCandidate
from rekappa.errors import ConfigError, SourceError
from rekappa.iceberg.past import rows_at
from rekappa.lookup import Lookup, Precedence
from rekappa.record import INGESTION, METADATA, OFFSET
from rekappa.spark.names import quoted
from rekappa.timeline import TICK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SINCE, GONE = "rekappa_valid_from", "rekappa_deleted"
"""The columns that rekappa adds to versions that it keeps."""
_ARRIVED, _PLACE = "__arrived", "__place"


@dataclass(frozen=True, slots=True)
class Versions:
    """An Iceberg table that holds the versions of a lookup, and its columns that say when each held."""

    lookup: str
    table: str
    key: tuple[str, ...]
    valid_from: str
    sequence: str | None
    deleted: str | None
    order: Precedence = Precedence.VALIDITY
    changes: ChangesLookup | None = None
    remedy: str = ""

    def read(self, spark: SparkSession, snapshot: int | None = None) -> DataFrame:
        """All versions, as the table is now (in a stream: at each micro-batch) or was at a snapshot."""
        from pyspark.errors import AnalysisException

        try:
            rows = spark.table(self.table) if snapshot is None else rows_at(spark, self.table, snapshot)
        except AnalysisException:
            raise SourceError(
                f"Cannot read lookup {self.lookup!r}: its table {self.table} does not exist", hint=self.remedy
            ) from None
        return rows if self.changes is None else _changes(rows, self.changes)

    def opened(self, rows: DataFrame) -> Lookup:
        return Lookup.of(
            rows, self.key, self.valid_from, sequence=self.sequence, deleted=self.deleted, order=self.order
        )


def versions_of(config: AppConfig, name: str) -> Versions:
    """Where the versions of this lookup are; refuses a name that is none."""
    lookup = config.lookups.get(name)
    if lookup is None:
        raise ConfigError(
            f"Cannot find lookup {name!r}", hint=f"Lookups of the app: {', '.join(config.lookups) or 'none'}."
        )
    if isinstance(lookup, ChangesLookup):
        past = [one for one in config.sources[lookup.source].candidates.values() if isinstance(one, IcebergCandidate)]
        return Versions(
            name, past[0].table, lookup.key, _ARRIVED, lookup.sequence or _PLACE, lookup.deleted or GONE,
            Precedence.ARRIVAL, lookup, "Archive its topic first: rekappa archive run APP",
        )  # fmt: skip
    if isinstance(lookup, IcebergLookup) and lookup.valid_from is not None:
        remedy = f"Check lookups.{name}.table, or create it."
        return Versions(
            name, lookup.table, lookup.key, lookup.valid_from, lookup.sequence, lookup.deleted, remedy=remedy
        )
    remedy = f"Keep its versions first: rekappa archive lookup APP --lookup {name}"
    return Versions(name, kept_table(config, name, lookup), lookup.key, SINCE, None, GONE, remedy=remedy)


def kept_table(config: AppConfig, name: str, lookup: LookupTable) -> str:
    """The Iceberg table in which rekappa keeps the versions of a table that does not."""
    told = getattr(lookup, "versions", None)
    return told or f"{config.default_catalog()}.{config.app.replace('-', '_')}_lookups.{name}"


def _changes(rows: DataFrame, changes: ChangesLookup) -> DataFrame:
    """Archived changes as versions: the columns of the table that changed, and when each change counts."""
    from pyspark.sql import functions as F

    counts = F.unix_micros(F.col(INGESTION)) + F.lit(changes.lag // TICK)
    when = [F.timestamp_micros(counts).alias(_ARRIVED), F.col(OFFSET).alias(_PLACE)]
    if changes.envelope is None:
        gone = [] if changes.deleted else [F.lit(False).alias(GONE)]
        return rows.select(*(F.col(quoted(name)) for name in rows.columns if name != METADATA), *when, *gone)
    after = rows.schema["after"].dataType
    values = [
        F.coalesce(F.col(f"after.{quoted(name)}"), F.col(f"before.{quoted(name)}")).alias(name)
        if name in changes.key
        else F.col(f"after.{quoted(name)}").alias(name)
        for name in after.fieldNames()  # type: ignore[attr-defined]
    ]
    ranked = [F.col(changes.sequence).alias(changes.sequence)] if changes.sequence else []
    return rows.where(F.col("op").isNotNull()).select(*values, *ranked, *when, (F.col("op") == "d").alias(GONE))
