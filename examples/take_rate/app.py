"""Take rate: which impressions led to a play within ten minutes, and how many of them per show."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rekappa import App

app = App("take_rate")


@app.job
def plays_per_impression(impressions: DataFrame, playbacks: DataFrame) -> DataFrame:
    """Attribute each play to the impression that led to it; an impression without a play has none."""
    shown = impressions.withWatermark("event_ts", "10 minutes").alias("i")
    played = playbacks.withWatermark("event_ts", "10 minutes").alias("p")
    led_to = F.expr(
        "i.impression_id = p.impression_id"
        " AND p.event_ts >= i.event_ts AND p.event_ts < i.event_ts + INTERVAL 10 MINUTES"
    )
    return shown.join(played, led_to, "leftOuter").select(
        "i.impression_id",
        "i.account_id",
        "i.show_id",
        "i.event_ts",
        F.col("p.playback_id"),
        F.col("p.event_ts").alias("played_ts"),
    )


@app.job
def take_rate(impressions: DataFrame, playbacks: DataFrame) -> DataFrame:
    """The share of impressions that led to a play, per show and ten minutes."""
    pairs = plays_per_impression(impressions, playbacks)
    return (
        pairs.groupBy(F.window("event_ts", "10 minutes"), "show_id")
        .agg(F.count("*").alias("impressions"), F.count("playback_id").alias("plays"))
        .select(
            F.col("window.start").alias("window_start"),
            "show_id",
            "impressions",
            "plays",
            (F.col("plays") / F.col("impressions")).alias("take_rate"),
        )
    )
