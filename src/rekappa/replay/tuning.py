"""Settings that an expert would choose for a bulk run, from what is known of the tables before it starts.

Each choice carries its reason, and a setting of the profile always wins over it.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MB, GB = 1024**2, 1024**3
EXPANSION = 5
"""Rows in a shuffle take about this many times their bytes in zstd Parquet."""
PARTITION_BYTES = 64 * MB
"""What one task should shuffle: small enough to hash in memory, large enough to be worth a task."""

ARROW_BYTES = 16 * MB
"""What one batch of rows on its way through Python should take."""


@dataclass(frozen=True, slots=True)
class TunedSetting:
    key: str
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Bytes that one chunk reads, per source; what there is to work with: `cores` in all, and `memory` of one process
    with `together` of them (all, if None)."""

    source_bytes: Mapping[str, int]
    cores: int
    memory: int
    together: int | None = None


def process_settings(memory: int, cores: int) -> tuple[TunedSetting, ...]:
    """What must be known when the JVM starts. `memory` is the machine's."""
    heap = min(max(memory // 4, GB), 8 * GB, max(cores, 1) * 2 * GB)
    options = ["-XX:+UseParallelGC"]
    if sys.platform == "linux":
        options.append("-XX:+UseTransparentHugePages")
    return (
        TunedSetting("spark.driver.memory", f"{heap // MB}m", "a quarter of the machine, at most 2 GB a core and 8 GB"),
        TunedSetting(
            "spark.driver.extraJavaOptions", " ".join(options), "throughput counts, not pauses; state is large"
        ),
    )


def bulk_settings(facts: Facts) -> tuple[TunedSetting, ...]:
    """What one job's chunks run with."""
    total = sum(facts.source_bytes.values()) * EXPANSION
    waves = max(math.ceil(total / PARTITION_BYTES / facts.cores), 1)
    partitions = facts.cores * waves
    hashed = max(facts.memory // (8 * (facts.together or facts.cores)), 64 * MB)
    return (
        TunedSetting("spark.sql.adaptive.enabled", "true", "sizes are known only after a shuffle"),
        TunedSetting(
            "spark.sql.shuffle.partitions", str(partitions), f"{total // MB} MB to shuffle on {facts.cores} cores"
        ),
        TunedSetting("spark.sql.join.preferSortMergeJoin", "false", "the smaller side of a join is hashed, not sorted"),
        TunedSetting(
            "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold",
            f"{hashed // MB}m",
            "an eighth of the memory of a task may hold the hashed side",
        ),
        TunedSetting(
            "spark.sql.autoBroadcastJoinThreshold",
            str(max(facts.memory // 64, 10 * MB)),
            "a side that takes no more than a 64th of the memory is sent to every task: the other is not shuffled",
        ),
        TunedSetting(
            "spark.sql.adaptive.coalescePartitions.parallelismFirst", "true", "every core has work to the end"
        ),
    )


def arrow_settings(rows: int, size: int) -> tuple[TunedSetting, ...]:
    """What a job runs with whose rows go through Python code of ours, batch by batch: so many rows of so many bytes in
    all, as they lie in Parquet files."""
    wide = max(size * EXPANSION // max(rows, 1), 1)
    records = min(max(ARROW_BYTES // wide, 1), 10_000)
    return (
        # Spark looks at all columns of a batch after every row that it adds, which takes longer than to add the row.
        TunedSetting("spark.sql.execution.arrow.maxBytesPerBatch", str((1 << 31) - 1), "bounded by its rows"),
        TunedSetting(
            "spark.sql.execution.arrow.maxRecordsPerBatch", str(records), f"{ARROW_BYTES // MB} MB of rows a batch"
        ),
    )


def machine_memory() -> int:
    """Bytes of memory of this machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 4 * GB


def unset_by(settings: Iterable[TunedSetting], profile: Mapping[str, object]) -> dict[str, str]:
    """The settings that the profile leaves to us."""
    return {setting.key: setting.value for setting in settings if setting.key not in profile}
