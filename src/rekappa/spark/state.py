"""Which state store a query needs, and settings that hold only while it is started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rekappa.spark.private import IN_MEMORY, ROCKSDB, analysed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def state_store(rows: DataFrame) -> str:
    """In memory, which is several times faster, unless the query has custom state, which only RocksDB holds."""
    return ROCKSDB if "TransformWithState" in analysed(rows).toString() else IN_MEMORY


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """A query keeps the settings of the moment it is started: they are ours only for that moment."""
    before: dict[str, str | None] = {key: spark.conf.get(key, None) for key in wanted}
    for key, value in wanted.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, earlier in before.items():
            if earlier is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, earlier)
