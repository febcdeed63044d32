"""Where a replay keeps its state, and Spark's settings that follow from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def state_settings(rows: DataFrame, state_store: str | None, cores: int) -> dict[str, str]:
    """Spark's settings for a replay: as few and as cheap writes as exactly-once allows.

    State lives in memory, which is several times faster than RocksDB, unless the query needs the latter.
    """
    analysed = rows._jdf.queryExecution().analyzed().toString()
    provider = state_store or (ROCKSDB if "TransformWithState" in analysed else IN_MEMORY)
    return {
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.stateStore.providerClass": provider,
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


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """A query keeps the settings of the moment it is started: they are ours only for that moment."""
    before: dict[str, str | None] = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, earlier in before.items():
            if earlier is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, earlier)
