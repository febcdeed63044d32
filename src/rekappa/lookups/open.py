"""Giving a job its lookups: as they grow, as they were planned, or empty, to look at the job alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rekappa.app import Job
from rekappa.config.model import AppConfig
from rekappa.errors import SourceError
from rekappa.lookups.versions import Versions, versions_of
from rekappa.plan.plan import LookupPlan
from rekappa.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def with_lookups(spark: SparkSession, config: AppConfig, job: Job) -> Job:
    """The job with its lookups as they are now; a stream that joins them sees new versions at each micro-batch.

    Refuses one whose table is missing, or in which a key and time do not tell which row held.
    """
    given = {}
    for name in job.lookups:
        versions = versions_of(config, name)
        rows = versions.read(spark)
        require_sound(versions, rows)
        given[name] = versions.opened(rows)
    return replace(job, given=given)


def with_planned_lookups(spark: SparkSession, config: AppConfig, job: Job, planned: tuple[LookupPlan, ...]) -> Job:
    """The job with its lookups at the snapshots that the plan was made on."""
    pinned: Mapping[str, LookupPlan] = {one.name: one for one in planned}
    found = {name: versions_of(config, name) for name in job.lookups}
    return replace(job, given={name: one.opened(one.read(spark, pinned[name].snapshot)) for name, one in found.items()})


def with_empty_lookups(spark: SparkSession, config: AppConfig, job: Job) -> Job:
    """The job with lookups that have their columns and no row."""
    given = {}
    for name in job.lookups:
        versions = versions_of(config, name)
        given[name] = versions.opened(spark.createDataFrame([], versions.read(spark).schema))
    return replace(job, given=given)


def require_sound(versions: Versions, rows: DataFrame) -> None:
    """Refuse versions without a key or a time, and two of one key and time that nothing ranks."""
    from pyspark.sql import functions as F

    names = (*versions.key, versions.valid_from)
    versions.opened(rows)
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
        raise SourceError(
            f"Cannot use lookup {versions.lookup!r}: {versions.table} has a row with {told}",
            hint="Key and time must be there in every row.",
        )
    if versions.changes is not None:
        return
    raise SourceError(
        f"Cannot use lookup {versions.lookup!r}: {versions.table} has {bad[0]['__rows']} rows with {told}",
        hint="Remove all but one, or name the column that ranks them: sequence.",
    )
