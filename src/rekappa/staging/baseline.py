"""What production was when a backfill was created: where the search for somebody else's changes starts.

An Iceberg table is known by its snapshot. Other sinks keep no history; the time is all that is known of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rekappa.config.model import AppConfig, IcebergSink
from rekappa.errors import RunError
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.history import current_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION = 1


@dataclass(frozen=True, slots=True)
class Baseline:
    """`snapshots` holds the Iceberg sinks: the table's snapshot, None if it was empty or did not exist."""

    at: datetime
    snapshots: Mapping[str, int | None] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"version": VERSION, "at": self.at.isoformat(), "snapshots": dict(self.snapshots)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Baseline:
        if value["version"] > VERSION:
            raise RunError(
                f"Cannot read a run's baseline of version {value['version']}: this rekappa knows {VERSION}",
                hint="Upgrade rekappa.",
            )
        return cls(datetime.fromisoformat(value["at"]), dict(value["snapshots"]))


def baseline_of(spark: SparkSession, config: AppConfig, sinks: Iterable[str]) -> Baseline:
    """Production as it is now, for the sinks that a backfill is about to make anew."""
    found: dict[str, int | None] = {}
    for name in sinks:
        spec = config.sinks[name]
        if isinstance(spec, IcebergSink):
            exists = spark.catalog.tableExists(spec.table)
            found[name] = current_id(load_table(spark, spec.table)) if exists else None
    return Baseline(datetime.now(UTC), found)
