"""Where a replay keeps its state, and Spark's settings that follow from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekappa.spark.state import PROVIDER, state_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def state_settings(rows: DataFrame, provider: str | None, cores: int) -> dict[str, str]:
    """Spark's settings for a replay: as few and as cheap writes as exactly-once allows.

    `provider` is the state store's class; the one that suits the query if None.
    """
    return {
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        PROVIDER: provider or state_store(rows),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "20",
        "spark.sql.streaming.maxBatchesToRetainInMemory": "1",
        # A batch that is run again after a crash writes its state files again, and in this version of Spark the
        # checksum of the first attempt can then be taken for the second's (SPARK-56461). It halves the files, too.
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        # Nobody rewinds a replay: what is kept is enough to resume.
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.sql.shuffle.partitions": str(cores),
    }
