"""Royalties: what each play earns, at the rate that held when it was played, unless a service finds it suspicious."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.request import urlopen

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rekappa import Answers, App, Lookup

app = App("royalties")

SERVICE = os.environ.get("RISK_URL", "http://127.0.0.1:8765/")
"""Read where the app starts: what a task runs takes it along to wherever it runs."""


def ask(keys: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One request for all accounts of a batch of rows."""
    with urlopen(SERVICE, json.dumps(keys).encode()) as answer:
        found: list[dict[str, Any]] = json.load(answer)
        return found


@app.job
def royalties(playbacks: DataFrame, rates: Lookup, risk: Answers) -> DataFrame:
    """Each play with its rate; a play of an account that was suspicious then earns nothing."""
    priced = rates.join(playbacks.withWatermark("event_ts", "10 minutes"), at="event_ts")
    judged = risk.join(priced, ask, at="event_ts")
    earned = F.when(F.col("suspicious"), F.lit(0)).otherwise(F.col("cents"))
    columns = ("playback_id", "show_id", "account_id", "event_ts", "cents", "suspicious")
    return judged.select(*columns, earned.alias("earned"))
