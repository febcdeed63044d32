"""The demo's app: which impressions led to a play within ten minutes."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rekappa import App

app = App("plays")


@app.job
def plays(impressions: DataFrame, playbacks: DataFrame) -> DataFrame:
    """Attribute each play to the impression that led to it."""
    shown = impressions.withWatermark("event_ts", "10 minutes").alias("i")
    played = playbacks.withWatermark("event_ts", "10 minutes").alias("p")
    same = F.expr("i.impression_id = p.impression_id")
    soon = F.expr("p.event_ts BETWEEN i.event_ts AND i.event_ts + INTERVAL 10 MINUTES")
    pairs = shown.join(played, same & soon, "leftOuter")
    return pairs.select("i.impression_id", "i.show_id", "i.event_ts", "p.playback_id")
