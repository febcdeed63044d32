"""Where the versions of a lookup's rows are, whatever kind of lookup it is, and reading them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rekappa.archive.tables import dead_letters_of
from rekappa.config.lookups import ChangesLookup, IcebergLookup, LookupTable
from rekappa.config.model import AppConfig, IcebergCandidate
from rekappa.errors import AppError, ConfigError
from rekappa.iceberg.past import rows_at
from rekappa.lookup import Lookup, Precedence
from rekappa.lookups.changes import ARRIVED, GONE, RANK, keyless, versions_of_changes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SINCE = "rekappa_valid_from"
"""The column that says since when a version that rekappa keeps has held."""


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
    letters: str = ""

    def read(self, spark: SparkSession, snapshot: int | None = None) -> DataFrame:
        """All versions, as the table is now (in a stream: at each micro-batch) or was at a snapshot."""
        from pyspark.sql import functions as F

        rows = self._stored(spark, snapshot)
        if self.changes is None:
            return rows
        letters = None
        if spark.catalog.tableExists(self.letters):
            letters = spark.table(self.letters).where(F.col("source") == self.changes.source)
        return versions_of_changes(rows, letters, self.changes)

    def left_out(self, spark: SparkSession, snapshot: int | None = None) -> int:
        """How many archived changes tell no key: they are no versions."""
        return 0 if self.changes is None else keyless(self._stored(spark, snapshot), self.changes).count()

    def _stored(self, spark: SparkSession, snapshot: int | None) -> DataFrame:
        from pyspark.errors import AnalysisException

        try:
            return spark.table(self.table) if snapshot is None else rows_at(spark, self.table, snapshot)
        except AnalysisException:
            raise ConfigError(
                f"Cannot read lookup {self.lookup!r}: its table {self.table} does not exist", hint=self.remedy
            ) from None

    def opened(self, rows: DataFrame) -> Lookup:
        """The lookup itself; refuses rows without its columns, or whose times are no instants."""
        try:
            return Lookup.of(
                rows, self.key, self.valid_from, sequence=self.sequence, deleted=self.deleted, order=self.order
            )
        except AppError as error:
            raise ConfigError(f"{error.message} (lookup {self.lookup!r}, {self.table})", hint=error.hint) from None


def versions_of(config: AppConfig, name: str) -> Versions:
    """Where the versions of this lookup are; refuses a name that is none."""
    lookup = config.lookups.get(name)
    if lookup is None:
        raise ConfigError(
            f"Cannot find lookup {name!r}", hint=f"Lookups of the app: {', '.join(config.lookups) or 'none'}."
        )
    if isinstance(lookup, ChangesLookup):
        past = [one for one in config.sources[lookup.source].candidates.values() if isinstance(one, IcebergCandidate)]
        order = Precedence.ARRIVAL if lookup.sequence else Precedence.VALIDITY
        return Versions(
            name, past[0].table, lookup.key, ARRIVED, RANK, lookup.deleted or GONE, order, lookup,
            "Archive its topic first: rekappa archive run APP", dead_letters_of(config),
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
