"""The first of two chained apps: impressions, cleaned up for everybody who reads them."""

from pyspark.sql import DataFrame

from rekappa import App

app = App("enrich")


@app.job
def shown(impressions: DataFrame) -> DataFrame:
    """What was shown to whom."""
    return impressions.selectExpr("impression_id", "account_id", "show_id", "event_ts")
