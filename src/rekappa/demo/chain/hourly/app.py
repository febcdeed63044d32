"""The second of two chained apps: how often each show was shown, by the hour."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rekappa import App

app = App("hourly")


@app.job
def hourly(shown: DataFrame) -> DataFrame:
    """Counted as the hour goes on; an hour is closed ten minutes after its end."""
    seen = shown.withWatermark("event_ts", "10 minutes")
    counted = seen.groupBy(F.window("event_ts", "1 hour").alias("hour"), "show_id").count()
    return counted.selectExpr("hour.start AS hour", "show_id", "count")
