"""One job for each shape of query that the fidelity suite replays."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rekappa import App

app = App("fidelity")

DELAY = "5 minutes"


@app.job
def plain(impressions: DataFrame) -> DataFrame:
    """Stateless: a filter and a map."""
    kept = impressions.where("show_id % 3 <> 0")
    return kept.select("impression_id", (F.col("show_id") * 10).alias("tenfold"), "event_ts")


@app.job
def tumbling(impressions: DataFrame) -> DataFrame:
    windows = impressions.withWatermark("event_ts", DELAY).groupBy(F.window("event_ts", "10 minutes"), "show_id")
    counted = windows.agg(F.count("*").alias("n"), F.sum("account_id").alias("accounts"))
    return counted.select("window.start", "show_id", "n", "accounts")


@app.job
def sliding(impressions: DataFrame) -> DataFrame:
    windows = impressions.withWatermark("event_ts", DELAY).groupBy(
        F.window("event_ts", "10 minutes", "5 minutes"), "show_id"
    )
    return windows.count().select("window.start", "show_id", F.col("count").alias("n"))


@app.job
def session_windows(impressions: DataFrame) -> DataFrame:
    team = (F.col("account_id") % 40).alias("team")
    sessions = impressions.withWatermark("event_ts", DELAY).groupBy(F.session_window("event_ts", "2 minutes"), team)
    return sessions.count().select("session_window.start", "session_window.end", "team", F.col("count").alias("n"))


@app.job
def inner_join(impressions: DataFrame, playbacks: DataFrame) -> DataFrame:
    shown = impressions.withWatermark("event_ts", DELAY).alias("i")
    played = playbacks.withWatermark("event_ts", DELAY).alias("p")
    soon = "p.event_ts BETWEEN i.event_ts AND i.event_ts + INTERVAL 8 MINUTES"
    pairs = shown.join(played, F.expr(f"i.impression_id = p.impression_id AND {soon}"))
    return pairs.select("i.impression_id", "p.playback_id", "i.event_ts", F.col("p.event_ts").alias("played_ts"))


@app.job
def left_join(impressions: DataFrame, playbacks: DataFrame) -> DataFrame:
    """From the play's side: many plays have no impression in the four minutes before them."""
    shown = impressions.withWatermark("event_ts", DELAY).alias("i")
    played = playbacks.withWatermark("event_ts", DELAY).alias("p")
    before = "i.event_ts BETWEEN p.event_ts - INTERVAL 4 MINUTES AND p.event_ts"
    pairs = played.join(shown, F.expr(f"i.impression_id = p.impression_id AND {before}"), "leftOuter")
    return pairs.select("p.playback_id", "p.event_ts", F.col("i.event_ts").alias("shown_ts"))


@app.job
def distinct_rows(impressions: DataFrame) -> DataFrame:
    payload = impressions.withWatermark("event_ts", DELAY).select("impression_id", "show_id", "event_ts")
    return payload.dropDuplicates()


@app.job
def distinct_keys(impressions: DataFrame) -> DataFrame:
    payload = impressions.withWatermark("event_ts", DELAY).select("impression_id", "show_id", "event_ts")
    return payload.dropDuplicates(["impression_id", "event_ts"])


@app.job
def distinct_within(impressions: DataFrame) -> DataFrame:
    payload = impressions.withWatermark("event_ts", DELAY).select("impression_id", "show_id", "event_ts")
    return payload.dropDuplicatesWithinWatermark(["impression_id"])


@app.job
def chained(impressions: DataFrame) -> DataFrame:
    """Two aggregates, one on top of the other."""
    timed = impressions.withWatermark("event_ts", DELAY)
    fives = timed.groupBy(F.window("event_ts", "5 minutes"), "show_id").count()
    quarters = fives.groupBy(F.window(F.window_time("window"), "15 minutes"))
    totals = quarters.agg(F.sum("count").alias("n"), F.max("count").alias("busiest"))
    return totals.select("window.start", "n", "busiest")


@app.job
def self_join(impressions: DataFrame) -> DataFrame:
    """A show's impressions that follow each other closely: two readers of one topic."""
    timed = impressions.withWatermark("event_ts", DELAY)
    soon = "b.event_ts > a.event_ts AND b.event_ts <= a.event_ts + INTERVAL 20 SECONDS"
    pairs = timed.alias("a").join(timed.alias("b"), F.expr(f"a.show_id = b.show_id AND {soon}"))
    return pairs.select("a.impression_id", F.col("b.impression_id").alias("next_id"), "a.event_ts")


@app.job
def windowed_join(impressions: DataFrame, playbacks: DataFrame) -> DataFrame:
    """Both sources counted by window, and the counts joined."""
    shown = impressions.withWatermark("event_ts", DELAY).groupBy(F.window("event_ts", "10 minutes"), "show_id")
    played = playbacks.withWatermark("event_ts", DELAY).groupBy(F.window("event_ts", "10 minutes"), "show_id")
    both = shown.agg(F.count("*").alias("shown")).join(played.agg(F.count("*").alias("played")), ["window", "show_id"])
    return both.select("window.start", "show_id", "shown", "played")


@app.job
def both_halves(impressions: DataFrame) -> DataFrame:
    """A source put together with itself."""
    timed = impressions.withWatermark("event_ts", DELAY).select("show_id", "account_id", "event_ts")
    halves = timed.where("show_id % 2 = 0").unionByName(timed.where("account_id % 2 = 0"))
    counted = halves.groupBy(F.window("event_ts", "10 minutes"), "show_id").count()
    return counted.select("window.start", "show_id", F.col("count").alias("n"))
