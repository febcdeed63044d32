"""Giving a job its lookups: as they grow, as they were planned, or empty, to look at the job alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rekappa.answers import Answers
from rekappa.app import Job
from rekappa.config.lookups import ServiceLookup
from rekappa.config.model import AppConfig
from rekappa.errors import ConfigError
from rekappa.home import Home
from rekappa.lookup import Lookup
from rekappa.lookups.services import empty_answers, recalled_answers
from rekappa.lookups.versions import Versions, versions_of
from rekappa.plan.plan import LookupPlan
from rekappa.spark.names import quoted
from rekappa.spark.private import estimated_bytes, heap_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_SENT = 32
"""A lookup is sent to tasks if it takes no more than this part of the driver's memory, by Spark's own estimate."""
Service = Callable[[str, ServiceLookup], Answers]
"""How a job gets one of its services."""


def with_lookups(spark: SparkSession, config: AppConfig, job: Job, service: Service) -> Job:
    """The job with its lookups as they are now; a stream that joins them sees new versions at each micro-batch.

    Refuses one whose table is missing, or in which a key and time do not tell which row held.
    """

    def opened(versions: Versions) -> Lookup:
        rows = versions.read(spark)
        require_sound(versions, rows)
        return versions.opened(rows)

    return _given(config, job, opened, service)


def with_planned_lookups(
    spark: SparkSession, config: AppConfig, home: Home, job: Job, planned: tuple[LookupPlan, ...]
) -> Job:
    """The job with its lookups at the snapshots that the plan was made on."""
    pinned: Mapping[str, LookupPlan] = {one.name: one for one in planned}

    def recalled(name: str, lookup: ServiceLookup) -> Answers:
        return recalled_answers(spark, config, home, name, lookup, pinned[name].calls)

    def opened(versions: Versions) -> Lookup:
        return _sent(spark, versions.opened(versions.read(spark, pinned[versions.lookup].snapshot)))

    return _given(config, job, opened, recalled)


def with_empty_lookups(spark: SparkSession, config: AppConfig, job: Job) -> Job:
    """The job with lookups that have their columns and no row."""

    def opened(versions: Versions) -> Lookup:
        return versions.opened(spark.createDataFrame([], versions.read(spark).schema))

    return _given(config, job, opened, lambda name, lookup: empty_answers(spark, lookup))


def _sent(spark: SparkSession, lookup: Lookup) -> Lookup:
    """The lookup, its versions sent whole to every task where they fit: the events then stay where they are."""
    from pyspark.sql import functions as F

    if estimated_bytes(spark, lookup.rows) > heap_bytes(spark) // _SENT:
        return lookup
    return replace(lookup, rows=F.broadcast(lookup.rows))


def _given(config: AppConfig, job: Job, opened: Callable[[Versions], Lookup], service: Service) -> Job:
    given: dict[str, Lookup | Answers] = {}
    for name in job.lookups:
        lookup = config.lookups.get(name)
        if isinstance(lookup, ServiceLookup):
            given[name] = service(name, lookup)
        else:
            given[name] = opened(versions_of(config, name))
    return replace(job, given=given)


def require_sound(versions: Versions, rows: DataFrame) -> None:
    """Refuse versions without a key or a time, and two of one key and time that nothing ranks."""
    from pyspark.sql import functions as F

    names = (*versions.key, versions.valid_from)
    versions.opened(rows)
    if versions.changes is not None:
        # Nobody can edit an archive: of changes, what does not tell is left out, and the order in Kafka ranks the rest.
        return
    empty = F.lit(False)
    for name in names:
        empty = empty | F.col(quoted(name)).isNull()
    ranked = [*names, *([versions.sequence] if versions.sequence else [])]
    groups = rows.groupBy(*(F.col(quoted(name)) for name in ranked)).agg(F.count("*").alias("__rows"))
    bad = groups.where(empty | (F.col("__rows") > 1)).limit(1).collect()
    if not bad:
        return
    found = {name: bad[0][at] for at, name in enumerate(ranked)}
    told = ", ".join(f"{name}={value}" for name, value in found.items())
    if any(found[name] is None for name in names):
        raise ConfigError(
            f"Cannot use lookup {versions.lookup!r}: {versions.table} has a row with {told}",
            hint="Key and time must be there in every row.",
        )
    raise ConfigError(
        f"Cannot use lookup {versions.lookup!r}: {versions.table} has {bad[0]['__rows']} rows with {told}",
        hint="Remove all but one, or name the column that ranks them: sequence.",
    )
