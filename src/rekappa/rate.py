"""A cap on rows per second that holds over all parallel tasks of a run.

    from rekappa import limit_calls, rate_limit

    slower = rate_limit(events, 500)
    looked_up = events.mapInPandas(limit_calls(ask_the_service, 500), schema)

The driver keeps one bucket of tokens per cap; tasks, wherever they run, ask it before they let rows pass
(`rekappa.tokens`). Without a cap the DataFrame is returned as it is: no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rekappa.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BURST_SECONDS = 0.1
PACED = "rekappa_rate_limit"
"""The name of the condition in a query's plan that lets every row pass as it is."""


@dataclass(slots=True)
class TokenBucket:
    """Hands out tokens at a steady rate, never more than `burst` at once after a pause.

    `reserve` always succeeds and answers how long the caller must wait before it may use its tokens. In any
    stretch of t seconds at most `burst + rate * t` tokens become usable, plus the size of one reservation.
    """

    rate: float
    burst: float
    level: float = 0.0
    at: float = 0.0

    def reserve(self, count: int, now: float) -> float:
        """Take `count` tokens at time `now` (seconds, never going back); answer the seconds to wait."""
        self.level = min(self.burst, self.level + max(0.0, now - self.at) * self.rate) - count
        self.at = max(self.at, now)
        return max(0.0, -self.level / self.rate)


@dataclass(frozen=True, slots=True)
class Cap:
    """At most so many rows per second, under a name that people read in the progress line."""

    name: str
    rows_per_second: float

    def __post_init__(self) -> None:
        if not 0 < self.rows_per_second < float("inf"):
            raise ConfigError(
                f"Cannot limit {self.name!r} to {self.rows_per_second} rows per second: the cap must be above 0",
                hint="Leave max_rows_per_second out for no cap.",
            )


@dataclass(frozen=True, slots=True)
class Bucket:
    """Where a task finds one bucket, and how many rows it may ask for at once."""

    host: str
    port: int
    secret: bytes
    name: str
    rows_per_second: float

    @property
    def step(self) -> int:
        return max(1, int(self.rows_per_second * BURST_SECONDS))

    @property
    def number(self) -> int:
        """By which tasks ask for it: the name behind it is for people."""
        return int(self.name.split(":", 1)[0])


@dataclass(frozen=True, slots=True)
class Pace:
    """The caps that rows must pass: a sink's own, the run's. Small enough to travel with every task."""

    buckets: tuple[Bucket, ...]

    @property
    def step(self) -> int:
        """How many rows may pass at once without breaking a bound on bursts."""
        return min(bucket.step for bucket in self.buckets)

    def wait(self, rows: int) -> None:
        """Called in a task: return when `rows` rows may pass every cap."""
        from rekappa.tokens import ask

        for bucket in self.buckets:
            ask(bucket, rows)

    def through(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Arrow batches or pandas frames, cut so that bursts stay bounded, each held back until it may pass."""
        step = self.step
        for batch in batches:
            rows = len(batch)
            for start in range(0, rows, step):
                # Arrow batches have slice(), pandas frames iloc.
                piece = batch.slice(start, step) if hasattr(batch, "slice") else batch.iloc[start : start + step]
                self.wait(len(piece))
                yield piece


def paced(rows: DataFrame, pace: Pace | None) -> DataFrame:
    """The same rows, no faster than the pace allows; the very same DataFrame when there is none."""
    if pace is None or not pace.buckets:
        return rows

    from rekappa.spark.turnstile import turnstile

    for bucket in pace.buckets:
        rows = rows.where(turnstile(rows.sparkSession, bucket))
    return rows


def pace_of(spark: SparkSession, caps: Sequence[Cap]) -> Pace | None:
    """The pace for these caps; caps of one name in this process are one and the same bucket."""
    if not caps:
        return None
    from rekappa.tokens import bucket

    host = driver_host(spark)
    return Pace(tuple(bucket(host, cap.name, cap.rows_per_second) for cap in caps))


def driver_host(spark: SparkSession) -> str:
    """Where tasks reach this process: only those of a cluster are on other machines."""
    local = str(spark.conf.get("spark.master", "local")).startswith("local")
    return "127.0.0.1" if local else str(spark.conf.get("spark.driver.host", "127.0.0.1"))


def rate_limit(df: DataFrame, rows_per_second: float | None, name: str = "job") -> DataFrame:
    """Let at most so many rows per second of the whole run pass; `None` is no cap and costs nothing.

    Rows stay in Spark's JVM. Calls with the same name share one cap. Whatever gathers rows after it lets them go at
    once: a shuffle, and also Spark's own hand-over to a Python function (spark.sql.execution.arrow.maxRecordsPerBatch
    rows). Before a call to a service, `limit_calls` is exact.
    """
    if rows_per_second is None:
        return df
    return paced(df, pace_of(df.sparkSession, [Cap(name, rows_per_second)]))


def limit_calls(
    function: Callable[[Any], Iterable[Any]], rows_per_second: float | None, name: str = "job"
) -> Callable[[Any], Iterable[Any]]:
    """A function for mapInPandas or mapInArrow that gets its rows at the capped rate, a tenth of a second's at most
    at once. `None` is no cap: the very same function."""
    if rows_per_second is None:
        return function
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is None:
        raise ConfigError(f"Cannot limit {name!r}: no Spark session is active", hint="Call limit_calls in the job.")
    pace = pace_of(spark, [Cap(name, rows_per_second)])
    assert pace is not None
    return partial(_paced_call, function, pace)


def _paced_call(function: Callable[[Any], Iterable[Any]], pace: Pace, batches: Iterable[Any]) -> Iterable[Any]:
    return function(pace.through(batches))
