"""Peak state of ordered replay against that of a live run: the take-rate join over two hours, at the same lateness.

A live run keeps the state that its watermark lets it keep, in micro-batches of some seconds to a minute; here it is
the same job in micro-batches of a minute, events in the same order. Wider slices hold more: a slice's own rows come on
top of what the watermark keeps.
"""

from __future__ import annotations

import os
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks._reference import START, bench_home, make_archive, reference_app
from benchmarks._replay import replay
from rekappa.replay.tuning import machine_memory, process_settings
from rekappa.spark.session import open_session
from rekappa.timeline import Window, parse_instant

LIVE, SPANS = 1, (5, 15, 60)
SHORT = Window(parse_instant(START), parse_instant(START) + timedelta(hours=2))


def main() -> dict[str, Any]:
    """Peak state rows by span of the slices, and what they are of the live run's."""
    loaded, home = reference_app(), bench_home()
    settings = {one.key: one.value for one in process_settings(machine_memory(), os.cpu_count() or 1)}
    spark = open_session(loaded.config, "backfill", home, **settings)
    make_archive(spark)
    peaks: dict[int, int] = {}
    for span in (LIVE, *SPANS):
        spark.sql("DROP TABLE IF EXISTS lake.events.out_state")
        with tempfile.TemporaryDirectory() as folder:
            outcome = replay(spark, loaded, home, "lake.events.out_state", Path(folder), span=span, reads=SHORT)
        peaks[span] = outcome.peak_state_rows
        print(f"   {span} min: {peaks[span]:,} rows", flush=True)
    spark.stop()
    return {
        "live_rows": peaks[LIVE],
        "slices": {
            f"{span} min": {"peak_state_rows": peaks[span], "to_live": round(peaks[span] / peaks[LIVE], 2)}
            for span in SPANS
        },
    }
