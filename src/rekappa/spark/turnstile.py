"""The cap on rows per second inside Spark's JVM: a condition that lets every row pass, when its turn has come.

Rows stay where they are. The condition is a Java class of ours (`rekappa/jvm/sources/Turnstile.java`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekappa.rate import PACED, Bucket
from rekappa.spark.private import always_called, constructor

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

ASKED_SECONDS = 0.01
MOST_ASKED = 65_536


def turnstile(spark: SparkSession, bucket: Bucket) -> Column:
    """True for every row, once the bucket has let it pass. Tasks ask for a hundredth of a second's rows at a time."""
    step = max(1, min(int(bucket.rows_per_second * ASKED_SECONDS), MOST_ASKED))
    made = constructor(spark, "rekappa.Turnstile")
    function = made(bucket.host, bucket.port, bucket.secret, bucket.number, step)
    return always_called(spark, function, PACED)
