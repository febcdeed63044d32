"""How the time of a backfill grows with its window: 1, 6 and 24 hours of the same day, in one process.

The shortest window runs once more first, to warm up. Linear growth is an exponent of 1; the fixed cost of a run
makes it smaller.
"""

from __future__ import annotations

import math
import time
from datetime import timedelta
from typing import Any

from benchmarks._reference import ROWS, START, bench_home, make_archive, reference_app

HOURS = (1, 6, 24)


def main() -> dict[str, Any]:
    """Seconds and rows per second of each window, and the exponent between 6 and 24 hours."""
    from rekappa.config.bind import load_app
    from rekappa.planning.request import BackfillRequest
    from rekappa.runs.backfill import run_backfill
    from rekappa.runs.session import backfill_session
    from rekappa.timeline import Window, parse_instant

    loaded, home = reference_app(), bench_home()
    app, spark = load_app(loaded), backfill_session(loaded, home)
    make_archive(spark)
    first = parse_instant(START)
    seconds: dict[int, float] = {}
    for hours in (HOURS[0], *HOURS):
        window = Window(first, first + timedelta(hours=hours))
        request = BackfillRequest(window, jobs=("plays_per_impression",), allow_incomplete=True)
        began = time.monotonic()
        run_backfill(spark, loaded, app, home, request)
        seconds[hours] = time.monotonic() - began
        print(f"   {hours} h: {seconds[hours]:.1f} s", flush=True)
    return {
        "rows_per_hour": ROWS * 11 // 240,
        "seconds": {str(hours): round(seconds[hours], 2) for hours in HOURS},
        "rows_per_second": {str(hours): round(ROWS * 11 / 240 * hours / seconds[hours]) for hours in HOURS},
        "exponent_6_to_24_hours": round(math.log(seconds[24] / seconds[6]) / math.log(4), 2),
    }
