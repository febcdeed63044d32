"""Jobs whose sinks keep one row per key, written again and again."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rekappa import App

app = App("updating")


@app.job
def windowed(changes: DataFrame) -> DataFrame:
    """A row of a window is written as soon as there is something to count."""
    windows = changes.withWatermark("event_ts", "5 minutes").groupBy(F.window("event_ts", "10 minutes"), "team")
    return windows.agg(F.count("*").alias("n"), F.sum("amount").alias("amount")).select(
        "window.start", "team", "n", "amount"
    )


@app.job
def running(changes: DataFrame) -> DataFrame:
    """Since the beginning of time."""
    return changes.groupBy("team").agg(F.count("*").alias("n"), F.sum("amount").alias("amount"))


@app.job
def current(changes: DataFrame) -> DataFrame:
    """Change data: what an account was last set to."""
    return changes.select("account", "amount", "seq", "event_ts")


@app.job
def ranked(changes: DataFrame) -> DataFrame:
    """Change data that comes out of order and says so: the highest revision is the one that counts."""
    return changes.select("account", "amount", "revision", "event_ts")


@app.job
def opened(changes: DataFrame) -> DataFrame:
    """Change data with deletes: an account that is set to a multiple of three is closed."""
    return changes.select("account", "amount", "event_ts", (F.col("amount") % 3 == 0).alias("closed"))
