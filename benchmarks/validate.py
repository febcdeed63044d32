"""Validation against the plainest thing that could tell whether two tables agree: a full outer join that counts.

Both sides hold the same rows but for one in ten thousand of each kind: different, missing, extra. In turns, in
one process. `join` counts the matched, different, missing and extra rows of a full outer join on the key;
`validate` does that, names the differing columns, finds null and duplicate keys, and picks samples.
"""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmarks._reference import ROWS, bench_home, reference_app

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDS = int(os.environ.get("REKAPPA_BENCH_ROUNDS", "3"))
LIMIT = 1.5
SIDES = {
    "production": "id % 10000 <> 17 AS kept, IF(id % 10000 = 5, show_id + 1, show_id) AS show_id",
    "staging": "id % 10000 <> 29 AS kept, show_id",
}


def main() -> dict[str, Any]:
    """Seconds of both, the ratio, and what was found."""
    from rekappa.runs.session import backfill_session

    loaded, home = reference_app(), bench_home()
    spark = backfill_session(loaded, home)
    tables = [_table(spark, side) for side in SIDES]
    seconds: dict[str, list[float]] = {"join": [], "validate": []}
    contenders: dict[str, Callable[[DataFrame, DataFrame], tuple[int, ...]]] = {"join": _join, "validate": _validate}
    answers: set[tuple[int, ...]] = set()
    for number in range(ROUNDS):
        for name in contenders if number % 2 == 0 else reversed(contenders):
            began = time.monotonic()
            answers.add(contenders[name](*(spark.table(table) for table in tables)))
            seconds[name].append(round(time.monotonic() - began, 2))
            print(f"   {name}: {seconds[name][-1]} s", flush=True)
    if len(answers) != 1:
        raise RuntimeError(f"The contenders disagree: {answers}")
    ratio = statistics.median(seconds["validate"]) / statistics.median(seconds["join"])
    matched, different, missing, extra = answers.pop()
    return {
        "rows": ROWS,
        "matched": matched,
        "different": different,
        "missing": missing,
        "extra": extra,
        "seconds": seconds,
        "validate_to_join": round(ratio, 3),
        "limit": LIMIT,
        "driver_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _table(spark: SparkSession, side: str) -> str:
    name = f"lake.bench_validate.{side}"
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench_validate")
    if spark.catalog.tableExists(name):
        return name
    rows = spark.sql(f"""
        SELECT impression_id, account_id, show_id, event_ts, score FROM (
          SELECT id AS impression_id, account_id, event_ts, score, {SIDES[side]} FROM (
            SELECT id, pmod(xxhash64(id, 1), 1000000) AS account_id, pmod(xxhash64(id, 2), 500) AS show_id,
                   timestamp_micros(1793491200000000 + id * 7200) AS event_ts,
                   pmod(xxhash64(id, 3), 1000000) / 1e6 AS score
            FROM range(0, {ROWS}, 1, 4))) WHERE kept""")
    rows.writeTo(name).using("iceberg").create()
    return name


def _join(production: DataFrame, staging: DataFrame) -> tuple[int, ...]:
    """What one would write by hand."""
    from pyspark.sql import functions as F

    values = ["account_id", "show_id", "event_ts", "score"]
    p = production.select("impression_id", F.struct(*values).alias("p"))
    s = staging.select("impression_id", F.struct(*values).alias("s"))
    joined = p.join(s, "impression_id", "full_outer")
    both = F.col("p").isNotNull() & F.col("s").isNotNull()
    row = joined.agg(
        F.count_if(both & (F.col("p") == F.col("s"))),
        F.count_if(both & (F.col("p") != F.col("s"))),
        F.count_if(F.col("s").isNull()),
        F.count_if(F.col("p").isNull()),
    ).first()
    assert row is not None
    return tuple(row)


def _validate(production: DataFrame, staging: DataFrame) -> tuple[int, ...]:
    from rekappa.validate.compare import compare
    from rekappa.validate.result import Rules

    found = compare(production, staging, Rules(key=("impression_id",), unique=True))
    return (found.matched, found.different, found.missing, found.extra)
