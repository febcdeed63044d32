"""Bulk mode against hand-written Spark batch jobs: the take-rate join of a day, into the same kind of table.

Whole commands, each in processes of its own, in turns: what a person waits for, from the shell and back to it. See
`benchmarks._commands` for who takes part.
"""

from __future__ import annotations

import os
import statistics
from typing import Any

from benchmarks._commands import Timed, backfill, hand_written, make
from benchmarks._reference import ROWS

ROUNDS = int(os.environ.get("REKAPPA_BENCH_ROUNDS", "3"))
CONTENDERS = ("plain", "tuned", "bulk")


def main() -> dict[str, Any]:
    """Seconds of every contender and the ratios that matter."""
    make()
    timed: dict[str, list[Timed]] = {name: [] for name in CONTENDERS}
    for number in range(ROUNDS):
        # Turns go back and forth, so that a machine that slows down slows all of them.
        for name in CONTENDERS if number % 2 == 0 else reversed(CONTENDERS):
            timed[name].append(backfill("--mode", "bulk") if name == "bulk" else hand_written(name))
            print(f"   {name}: {timed[name][-1]}", flush=True)
    counts = {one.rows for some in timed.values() for one in some}
    if len(counts) != 1:
        raise RuntimeError(f"The contenders disagree: {timed}")

    def middle(name: str, part: str) -> float:
        return float(statistics.median(getattr(one, part) for one in timed[name]))

    return {
        "rows": ROWS,
        "output_rows": counts.pop(),
        "seconds": {name: [round(one.seconds, 2) for one in some] for name, some in timed.items()},
        "until_work": {name: round(middle(name, "begins"), 2) for name in CONTENDERS},
        "bulk_until_work": round(middle("bulk", "begins"), 2),
        "bulk_to_plain": round(middle("bulk", "seconds") / middle("plain", "seconds"), 3),
        "bulk_to_tuned": round(middle("bulk", "seconds") / middle("tuned", "seconds"), 3),
        "work_to_plain": round(middle("bulk", "working") / middle("plain", "working"), 3),
        "work_to_tuned": round(middle("bulk", "working") / middle("tuned", "working"), 3),
        "bulk_rows_per_second": round(ROWS * 1.1 / middle("bulk", "seconds")),
    }
