"""Where a replay keeps its state, and Spark's settings that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rekappa.spark.private import IN_MEMORY, IN_PAGES, PLAIN_CHECKPOINT_FILES, ROCKSDB, own_class
from rekappa.spark.state import PROVIDER, state_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG_FILES = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
    "spark.sql.streaming.checkpointFileManagerClass": PLAIN_CHECKPOINT_FILES,
}
"""The cheapest way to write the logs of a checkpoint: 7 ms for an entry instead of 40.

A query opens its logs when it starts and must then be freed of these settings with `forget`: other code (S3's, for one)
can't work with that file system.
"""


def state_settings(rows: DataFrame, provider: str | None, cores: int) -> dict[str, str]:
    """Spark's settings for a replay: as few and as cheap writes as exactly-once allows.

    `provider` is the state store's class; the one that suits the query if None.
    """
    return {
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        PROVIDER: provider or _own(rows),
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
        "spark.sql.streaming.pollingDelay": "0ms",
        # The reports on the partitions of each store are not looked at.
        "spark.sql.streaming.stateStore.numStateStoreInstanceMetricsToReport": "0",
        # Hadoop's file system for local folders, where checkpoints are, writes a checksum file beside every file and
        # starts a process to set the mode of each of the two. The plain one under it only writes the file.
        "fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    }


def _own(rows: DataFrame) -> str:
    """The store that suits the query: in memory, in pages of our own, wherever it need not be RocksDB."""
    suits = state_store(rows)
    if suits != IN_MEMORY:
        return suits
    own_class(rows.sparkSession, IN_PAGES)
    return IN_PAGES


def log_settings(chosen: Mapping[str, str], checkpoint: str) -> dict[str, str]:
    """`LOG_FILES` for a checkpoint on a disk, where the state store chosen allows it: RocksDB's can't work with that
    file system, nor can what other stores keep on this disk meanwhile."""
    return {} if chosen[PROVIDER] == ROCKSDB or not checkpoint.startswith("file:") else LOG_FILES


def forget(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Take settings back from a running query, whose session this is."""
    for key in settings:
        if spark.conf.get(key, None) is not None:
            spark.conf.unset(key)
