"""Ordered mode against the tuned batch job: the take-rate join of a day, micro-batch by micro-batch.

Whole commands, as in `benchmarks.bulk`: `rekappa backfill --mode ordered` with the slices that it chooses by itself,
and with slices as narrow as the example's `max_misalignment`. REKAPPA_BENCH_ORDERED names the only variants to run.
"""

from __future__ import annotations

import os
import statistics
from typing import Any

from benchmarks._commands import Timed, backfill, hand_written, make
from benchmarks._reference import ROWS

VARIANTS: dict[str, tuple[str, ...]] = {
    "default slices": (),
    "slices of 15 min": ("--slice-span", "15m"),
}


def main() -> dict[str, Any]:
    """Seconds and the ratio to the tuned batch job, by variant."""
    named = os.environ.get("REKAPPA_BENCH_ORDERED")
    variants = [name.strip() for name in named.split(";")] if named else list(VARIANTS)
    make()
    tuned = [hand_written("tuned")]
    found: dict[str, Timed] = {}
    for name in variants:
        found[name] = backfill("--mode", "ordered", *VARIANTS[name])
        print(f"   {name}: {found[name]}", flush=True)
    tuned.append(hand_written("tuned"))
    if len({one.rows for one in (*tuned, *found.values())}) != 1:
        raise RuntimeError(f"The contenders disagree: {tuned} {found}")
    base = statistics.mean(one.seconds for one in tuned)
    return {
        "rows": ROWS,
        "tuned_seconds": [round(one.seconds, 2) for one in tuned],
        "variants": {
            name: {
                "seconds": round(one.seconds, 2),
                "to_tuned": round(one.seconds / base, 2),
                "rows_per_second": one.rows_per_second,
            }
            for name, one in found.items()
        },
        "default_to_tuned": round(found["default slices"].seconds / base, 2) if "default slices" in found else None,
    }
