"""Custom state and de-duplication as one batch job: over the same slices, the same rows as micro-batches give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from archives import DAY, Archive, create_archive, events, save_plan

from rekappa.app import App, Job
from rekappa.config.model import AppConfig
from rekappa.home import Home
from rekappa.replay.custom.batches import BATCH
from rekappa.replay.custom.bykey import LATE
from rekappa.replay.custom.query import obstacle
from rekappa.replay.custom.run import sliced_rows
from rekappa.replay.ordered import run_slices
from rekappa.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OUT = "user STRING, what STRING, number BIGINT, event_ts TIMESTAMP"


@pytest.fixture(scope="module")
def archive(spark: SparkSession, bare_config: AppConfig, home: Home) -> Archive:
    """Two hours, every tenth event half an hour late."""
    made = create_archive(spark, bare_config, home)
    events(spark, 800, hours=2, late_every=10).writeTo(made.name).append()
    return made


def every_kind(events: DataFrame) -> DataFrame:
    """A value, a list and a map; timers that set the next one; steps before and after."""
    from datetime import UTC, datetime

    from pyspark.sql import Row
    from pyspark.sql import functions as F
    from pyspark.sql.streaming import StatefulProcessor

    class Every(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.handle = handle
            self.count = handle.getValueState("count", "n BIGINT, at TIMESTAMP, none STRING")
            self.open = handle.getListState("open", "value INT, at TIMESTAMP")
            self.by = handle.getMapState("by", "third INT", "n BIGINT, shown STRING")
            handle.deleteIfExists("before")

        def row(self, key: Any, what: str, number: int, millis: int) -> Any:
            return Row(user=key[0], what=what, number=number, event_ts=datetime.fromtimestamp(millis / 1000, UTC))

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            n = self.count.get()[0] if self.count.exists() else 0
            # The order of rows in a micro-batch is not defined.
            for row in sorted(rows, key=lambda one: (one.event_ts, one.value)):
                n += 1
                third = (row.value % 3,)
                seen = self.by.getValue(third)
                self.by.updateValue(third, ((seen.n if seen else 0) + row.value, 7))
                self.open.appendValue((row.value, row.event_ts))
                millis = int(row.event_ts.timestamp() * 1000)
                self.handle.registerTimer(millis + 600_000)
            self.count.update((n, row.event_ts, None))
            stored = self.count.get()
            what = f"{row.shift} {type(stored[1]).__name__} {stored[1].tzinfo} {stored[2]} {len(list(self.open.get()))}"
            yield self.row(key, what, n, millis)
            for third, (total, shown) in sorted(self.by.iterator()):
                yield self.row(key, f"{third} {shown}", total, timerValues.getCurrentWatermarkInMs())

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
            moment = expiredTimerInfo.getExpiryTimeInMs()
            waiting = sorted(self.handle.listTimers())
            yield self.row(key, f"fired for {key}, {len(waiting)} set", len(list(self.open.get())), moment)
            if moment % 3 == 0:
                self.handle.registerTimer(moment + 1_800_000)
            if moment % 4 == 0 and self.count.exists():
                self.count.clear()
                self.open.clear()
                self.by.removeKey((1,))
            if len(waiting) > 1:
                self.handle.deleteTimer(waiting[1])

        def close(self) -> None:
            pass

    chosen = events.select(
        "user", F.col("value").cast("int").alias("value"), "event_ts", (F.col("id") % 2).alias("shift")
    )
    timed = chosen.withWatermark("event_ts", "10 minutes").where("value < 90")
    grouped = timed.groupBy("user", F.col("shift"))
    made = grouped.transformWithState(Every(), OUT, "Append", "EventTime")
    return made.where("number >= 0").select("user", F.upper("what").alias("what"), "number", "event_ts")


def in_pandas(events: DataFrame) -> DataFrame:
    """The pandas flavour, without timers: what is late is not dropped."""
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    class Totals(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.total = handle.getValueState("total", "n BIGINT")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            total = self.total.get()[0] if self.total.exists() else 0
            kinds = set()
            last = None
            for frame in rows:
                total += frame["value"].sum()
                kinds |= {str(kind) for kind in frame.dtypes}
                newest = frame["event_ts"].max()
                last = newest if last is None else max(last, newest)
            self.total.update((total,))
            what = f"{type(key[0]).__name__} {sorted(kinds)}"
            yield pd.DataFrame({"user": [key[0]], "what": [what], "number": [total], "event_ts": [last]})

        def close(self) -> None:
            pass

    timed = events.select("user", "value", "event_ts").withWatermark("event_ts", "10 minutes")
    return timed.groupBy("user").transformWithStateInPandas(Totals(), OUT, "Append", "None")


def with_timeouts(events: DataFrame) -> DataFrame:
    """`applyInPandasWithState`: a user's events until ten minutes have passed without any."""
    import pandas as pd
    from pyspark.sql.streaming.state import GroupStateTimeout

    def until_quiet(key: Any, frames: Iterable[Any], state: Any) -> Iterable[Any]:
        if state.hasTimedOut:
            n, last = state.get
            yield pd.DataFrame(
                {"user": [key[0]], "what": ["quiet"], "number": [n], "event_ts": [pd.Timestamp(last, unit="ms")]}
            )
            state.remove()
            return
        n, last = state.get if state.exists else (0, 0)
        for frame in frames:
            n += len(frame)
            last = max(last, int(frame["event_ts"].max().timestamp() * 1000))
        state.update((n, last))
        state.setTimeoutTimestamp(max(last + 600_000, state.getCurrentWatermarkMs() + 1))

    some = events.where("user > 'u3' OR id % 500 < 100")
    timed = some.withWatermark("event_ts", "10 minutes").groupBy("user")
    return timed.applyInPandasWithState(
        until_quiet, OUT, "n BIGINT, last BIGINT", "append", GroupStateTimeout.EventTimeTimeout
    )


def with_gaps(events: DataFrame) -> DataFrame:
    """`applyInPandasWithState`: whole numbers and truths, in keys and columns, that are null in some rows."""
    import pandas as pd
    from pyspark.sql import functions as F
    from pyspark.sql.streaming.state import GroupStateTimeout

    def shown(key: Any, frames: Iterable[Any], state: Any) -> Iterable[Any]:
        kinds, total, last = set(), 0, None
        for frame in frames:
            kinds |= {f"{name} {kind}" for name, kind in frame.dtypes.items()}
            total += int(frame["large"].fillna(0).sum()) % 1_000_003
            last = frame["event_ts"].max() if last is None else max(last, frame["event_ts"].max())
        what = f"{key[1]} {type(key[1]).__name__} {sorted(kinds)}"
        yield pd.DataFrame({"user": [key[0]], "what": [what], "number": [total], "event_ts": [last]})
        state.update((1,))

    odd = events.select(
        "user",
        F.when(F.col("id") % 3 > 0, F.col("id") % 3 - 1).cast("int").alias("third"),
        F.when(F.col("id") % 11 > 0, F.col("id") + F.lit(2**60)).alias("large"),
        F.when(F.col("id") % 13 > 0, F.col("id") % 2 == 0).alias("even"),
        "event_ts",
    )
    grouped = odd.withWatermark("event_ts", "10 minutes").groupBy("user", "third")
    return grouped.applyInPandasWithState(shown, OUT, "n BIGINT", "append", GroupStateTimeout.EventTimeTimeout)


def first_of_zeros(events: DataFrame) -> DataFrame:
    """0.0 and -0.0 are two keys to Spark's de-duplication."""
    from pyspark.sql import functions as F

    signed = F.when(F.col("id") % 2 == 0, F.lit(0.0)).otherwise(F.lit(-0.0))
    odd = events.select("user", signed.alias("zero"), F.date_trunc("hour", "event_ts").alias("event_ts"))
    return odd.withWatermark("event_ts", "10 minutes").dropDuplicates(["user", "zero", "event_ts"])


def first_of_values(events: DataFrame) -> DataFrame:
    timed = events.withWatermark("event_ts", "10 minutes")
    return timed.dropDuplicatesWithinWatermark(["user", "value"]).select("user", "value", "event_ts")


def first_of_minutes(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    minutes = events.select("id", "user", F.date_trunc("minute", "event_ts").alias("event_ts"))
    return minutes.withWatermark("event_ts", "10 minutes").dropDuplicates(["user", "event_ts"]).drop("id")


def first_of_texts(events: DataFrame) -> DataFrame:
    """Nothing after the operator uses the event time: Spark takes it out before, and then no row is late."""
    from pyspark.sql import functions as F

    timed = events.withWatermark("event_ts", "10 minutes")
    minutes = timed.withColumn("minute", F.date_trunc("minute", "event_ts").cast("string"))
    return minutes.dropDuplicates(["user", "minute"]).select("user", "minute")


def put_together(events: DataFrame) -> DataFrame:
    """One stream with a watermark, split and put together again: of its parts the youngest event counts."""
    timed = events.withWatermark("event_ts", "10 minutes").select("user", "value", "event_ts")
    rare = timed.where("value % 50 = 0 AND event_ts < TIMESTAMP '2026-11-01 06:00:00'")
    return timed.where("value % 50 > 0").union(rare).dropDuplicatesWithinWatermark(["user", "value"])


def from_two(events: DataFrame, others: DataFrame) -> DataFrame:
    """Two sources with watermarks of their own, put together; an initial state; a user that is silent for hours."""
    from datetime import UTC, datetime

    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor

    class Counting(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.handle = handle
            self.count = handle.getValueState("count", "n BIGINT")

        def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
            self.count.update((initialState.n,))

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            n = (self.count.get() or (0,))[0]
            for row in sorted(rows, key=lambda one: one.event_ts):
                n += 1
                for timer in list(self.handle.listTimers()):
                    self.handle.deleteTimer(timer)
                self.handle.registerTimer(int(row.event_ts.timestamp() * 1000) + 1_000_000)
            self.count.update((n,))
            return iter(())

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
            moment = datetime.fromtimestamp(expiredTimerInfo.getExpiryTimeInMs() / 1000, UTC)
            yield Row(user=key[0], what="silent", number=self.count.get()[0], event_ts=moment)
            self.count.clear()

        def close(self) -> None:
            pass

    known = events.sparkSession.createDataFrame([("u1", 1000), ("nobody", 5)], "user STRING, n BIGINT")
    one = events.where("id % 7 = 0 OR id % 7 = 1 AND id % 500 < 100").withWatermark("event_ts", "10 minutes")
    other = others.where("id % 7 > 1").withWatermark("event_ts", "12 minutes")
    both = one.select("user", "event_ts").union(other.select("user", "event_ts"))
    return both.groupBy("user").transformWithState(
        Counting(), OUT, "Append", "EventTime", initialState=known.groupBy("user")
    )


JOBS: dict[Callable[..., Any], int] = {
    every_kind: 200, in_pandas: 40, with_timeouts: 10, with_gaps: 100, first_of_values: 100, first_of_minutes: 200,
    first_of_zeros: 20, first_of_texts: 200, put_together: 100,
    from_two: 8
}  # fmt: skip
"""Each with the fewest rows that it must give: a comparison of nothing shows nothing."""


def job_of(function: Callable[..., Any]) -> Job:
    app = App("custom")
    app.job(function)
    return app.jobs[function.__name__]


@pytest.mark.parametrize("function", JOBS, ids=lambda one: one.__name__)
def test_over_the_same_slices_it_gives_the_rows_of_micro_batches(
    spark: SparkSession, archive: Archive, location: Location, function: Callable[..., Any]
) -> None:
    from pyspark.sql import Observation

    job = job_of(function)
    plan = save_plan(location / "plan", dict.fromkeys(job.sources, archive), DAY, bound=timedelta(minutes=15))
    ordered: Counter[tuple[Any, ...]] = Counter()
    sources = dict.fromkeys(job.sources, archive.source())
    outcome = run_slices(
        spark, location / "plan", "job", sources, lambda inputs: function(**inputs),
        lambda rows, number: ordered.update((number, *row) for row in rows.collect()), location / "checks",
    )  # fmt: skip
    late = Observation()
    rows, marks = sliced_rows(spark, sources, plan, plan.jobs[0], job, job.name, late=late)
    found = Counter(
        (row[BATCH], *(value for name, value in row.asDict().items() if name != BATCH)) for row in rows.collect()
    )
    assert found == ordered
    assert len(found) >= JOBS[function]
    assert marks.slices == len(plan.jobs[0].slices)
    if function in (in_pandas, first_of_texts):
        assert outcome.late_rows == 0
    else:
        assert late.get[LATE] == outcome.late_rows > 0


def test_a_watermark_after_the_operator_is_for_micro_batches(spark: SparkSession, archive: Archive) -> None:
    """Spark's one watermark is the least of all: one that is set later holds back the operator's own."""

    def later(events: DataFrame) -> DataFrame:
        return first_of_minutes(events).withWatermark("event_ts", "2 hours")

    schemas = {"events": archive.source().schema}
    assert obstacle(spark, job_of(first_of_minutes), schemas) == ""
    assert "sets a watermark after its stateful operator" in obstacle(spark, job_of(later), schemas)
