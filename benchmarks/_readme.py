"""The README's paragraph on speed, from results.json: a sentence stands there if all that it speaks of was measured."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks._page import RESULTS, value_at

README = Path(__file__).parent.parent / "README.md"
HEADING, NEXT = "## How fast\n", "\n## "
SENTENCES = (
    "A day of {bulk.rows} impressions joined with a tenth as many playbacks, on two cores, as ratios inside one run"
    " ([all figures](docs/benchmarks.md)): the whole command `rekappa backfill`, in bulk mode, takes"
    " {bulk.bulk_to_plain} of the time of the simplest hand-written Spark batch job and {bulk.bulk_to_tuned} of the"
    " same job tuned by hand, its work beginning after {bulk.bulk_until_work} seconds.",
    "In ordered mode, with state, it takes {ordered.default_to_tuned} times the tuned job.",
    "Custom state in Python (`transformWithState`) goes through Spark's state store at about a millisecond an event; in"
    " bulk mode the same code takes {sessions.bulk_events_per_second} events a second,"
    " {sessions.bulk_to_ordered_15_min} times as many.",
    "Reading the archive slice by slice takes {source.whole_to_parquet} times as long as Spark's Parquet reader for the"
    " same files, {source.cut_to_parquet} times where slices cut them.",
    "A cap on rows per second that is not reached makes a plain scan {rate.cost.never_reached_to_plain} times as long.",
    "Validating {validate.rows} rows against as many takes {validate.validate_to_join} times a join that only counts.",
    "Publishing an hour in a table of a thousand hours takes {publish.time_1000_to_10_hours} times as long as in one of"
    " ten.",
)


def how_fast(results: Mapping[str, Any]) -> str:
    """The paragraph, in lines, ending in a line feed."""
    made = [filled for sentence in SENTENCES if (filled := _filled(sentence, results)) is not None]
    return textwrap.fill(" ".join(made), 120, break_long_words=False, break_on_hyphens=False) + "\n"


def with_figures(text: str, results: Mapping[str, Any]) -> str:
    """The README with the paragraph as it is to be."""
    before, heading, rest = text.partition(HEADING)
    if not heading:
        raise ValueError("Cannot write the figures: README.md has no section on speed")
    return f"{before}{heading}\n{how_fast(results)}{NEXT}{rest.split(NEXT, 1)[1]}"


def _filled(sentence: str, results: Mapping[str, Any]) -> str | None:
    by_name = {name: entry["result"] for name, entry in results.items()}
    values = {path: value_at(by_name, path) for path in re.findall(r"{([\w.]+)}", sentence)}
    if None in values.values():
        return None
    return re.sub(r"{([\w.]+)}", lambda found: _short(values[found.group(1)]), sentence)


def _short(value: float) -> str:
    """Of large numbers what can be remembered; of ratios two digits."""
    if value >= 1_000_000:
        return f"{value / 1_000_000:g} M"
    if value >= 1000:
        return f"{round(value, -3):,.0f}"
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


if __name__ == "__main__":
    README.write_text(with_figures(README.read_text(), json.loads(RESULTS.read_text())))
