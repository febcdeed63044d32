"""docs/benchmarks.md, written from results.json whenever a benchmark has run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results.json")


@dataclass(frozen=True)
class Figure:
    """One line of a table: what it is, where in the result it stands, and what we want of it."""

    words: str
    path: str
    wanted: str = ""


@dataclass(frozen=True)
class Section:
    title: str
    text: str
    figures: tuple[Figure, ...]


SECTIONS = {
    "bulk": Section(
        "Bulk replay",
        "The take-rate join of a day (impressions left-joined with a tenth as many playbacks), planned and run by"
        " `rekappa backfill`, against the same join as a hand-written Spark batch job.",
        (
            Figure("impressions", "rows"),
            Figure("time to the simplest batch job with Spark's defaults", "bulk_to_plain", "at most 0.6"),
            Figure("time to the same job tuned by hand", "bulk_to_tuned", "at most 1.1"),
            Figure("rows per second", "bulk_rows_per_second"),
        ),
    ),
    "window": Section(
        "Growth with the window",
        "The same backfill over 1, 6 and 24 hours.",
        (
            Figure("seconds", "seconds"),
            Figure("rows per second", "rows_per_second"),
            Figure("exponent from 6 to 24 hours", "exponent_6_to_24_hours", "1: linear"),
        ),
    ),
    "source": Section(
        "Replay source alone",
        "All columns of the archive, one slice per micro-batch, into a no-op sink, against Spark's own batch scan.",
        (
            Figure("rows", "rows"),
            Figure("micro-batches", "micro_batches"),
            Figure("time to Spark's batch scan", "ratio_to_batch_scan", "at most 1.4"),
            Figure("rows per second", "rows_per_second"),
        ),
    ),
    "ordered": Section(
        "Ordered replay",
        "The same take-rate join in micro-batches with state, against the simplest batch job.",
        (Figure("impressions", "rows"), Figure("variants", "variants", "at most 5 times plain batch")),
    ),
    "state": Section(
        "State of a replay",
        "Peak state rows of the take-rate join in ordered mode, by span of its slices, against the same job in"
        " micro-batches of a minute, as a live run has them.",
        (Figure("rows, live", "live_rows"), Figure("slices", "slices")),
    ),
    "sessions": Section(
        "Custom state",
        "The sessions app (`transformWithState` with timers) over the same slices: in ordered mode, and in bulk.",
        (
            Figure("events", "rows"),
            Figure("time of ordered to bulk", "ordered_to_bulk", "at least 40 for 1.2 M events"),
            Figure("events per second in bulk", "bulk_rows_per_second"),
            Figure("variants", "variants"),
        ),
    ),
    "planner": Section(
        "Planning",
        "Files of three sources into slices; pure Python.",
        (
            Figure("sizes", "sizes", "1 M files in under 20 s and 2 GB"),
            Figure("growth exponent", "growth_exponent", "1: linear"),
        ),
    ),
    "large": Section(
        "Planning a large table",
        "`rekappa plan`, the whole command, over a real Iceberg table of so many files made from metadata alone, all of"
        " them in the window; memory of all its processes together.",
        (Figure("sizes", "sizes", "1 M files in under 60 s and 4 GB"), Figure("measured beside", "beside")),
    ),
    "month": Section(
        "A month in bulk",
        "30 chunks of a day, one after the other; the JVM's heap after a collection, and the Python driver's memory.",
        (
            Figure("rows a day", "rows_a_day"),
            Figure("seconds after so many days", "seconds_by_day"),
            Figure("days 21 to 30 to days 11 to 20", "last_third_to_middle_third", "1: linear"),
            Figure("heap after so many days", "heap_bytes_by_day", "flat"),
            Figure("resident memory after so many days", "resident_bytes_by_day", "flat"),
        ),
    ),
    "growth": Section(
        "Growth on disk",
        "Files and bytes on disk, in quarters of the way: of an idle router (a note of completeness a minute; a week"
        " has 10,080), of the metadata of a live sink whose snapshots last as long as a hundred of its commits, of an"
        " idle live run that looks for events ten times a second (checkpoint, savepoints, logs, run store, table), and"
        " of the same run after every minute of a week as a simulated clock tells it.",
        (
            Figure("idle router, after so many notes", "idle_router", "levels off"),
            Figure("busy sink, after so many batches", "busy_sink", "levels off"),
            Figure("seconds of the idle live run", "idle_live_seconds"),
            Figure("idle live run, after so much of them", "idle_live", "levels off"),
            Figure("idle live run, after so many minutes of a week", "idle_week", "levels off"),
        ),
    ),
    "router": Section(
        "Archiving",
        "The router against the plainest Spark job that writes the topic, payload and Kafka's position, to Parquet.",
        (
            Figure("messages", "messages"),
            Figure("throughput to the plain job", "throughput_to_plain", "at least 0.8"),
            Figure("throughput to a job that writes the payload only", "throughput_to_payload_only"),
            Figure("messages per second", "messages_per_second"),
            Figure("bytes a message in Kafka, lz4", "kafka_bytes_per_message_lz4"),
            Figure("bytes a message in Kafka, zstd", "kafka_bytes_per_message_zstd"),
            Figure("bytes a message in the archive", "archive_bytes_per_message"),
        ),
    ),
    "validate": Section(
        "Validation",
        "Staging against production by key, against a full outer join that only counts.",
        (Figure("rows a side", "rows"), Figure("time to the join", "validate_to_join", "at most 1.5")),
    ),
    "publish": Section(
        "Publishing",
        "One hour replaced in tables of 10, 100 and 1000 hours.",
        (
            Figure("by hours in the table", "hours"),
            Figure("time, 1000 hours to 10", "time_1000_to_10_hours", "1: follows the window"),
            Figure("files touched, 1000 hours to 10", "files_1000_to_10_hours", "1"),
        ),
    ),
    "console": Section(
        "The console's pages",
        "Milliseconds until the server has made a page (median of 15), with many runs in the store and a real Iceberg"
        " archive of so many files, made from metadata alone. What pages show of it is found out in the background, by"
        " the commands that do so on the command line, which takes as long as is told here.",
        (
            Figure("runs in the store", "runs"),
            Figure("files in the archive", "files"),
            Figure("milliseconds", "milliseconds"),
            Figure("slowest page", "slowest", "below 200"),
            Figure("seconds until all commands had answered", "seconds_in_the_background"),
        ),
    ),
    "rate": Section(
        "Rate limit",
        "Rows per second that get through, as a share of the cap; what the operator costs.",
        (Figure("kept", "kept", "within 10 %"), Figure("cost", "cost", "none when unset")),
    ),
}


def page(results: dict[str, Any]) -> str:
    """The whole page, ending in a line feed."""
    return "\n".join(_lines(results)) + "\n"


def _lines(results: dict[str, Any]) -> Iterator[str]:
    yield "# How fast it is"
    yield ""
    yield "Written by `python -m benchmarks._page` from benchmarks/results.json, which `make bench` fills; a test"
    yield "compares the two. Figures of one run on one shared machine: read the ratios, which are taken inside one run."
    for name, section in SECTIONS.items():
        yield from ("", f"## {section.title}", "", section.text, "")
        entry = results.get(name)
        if entry is None:
            yield f"Not measured yet: `make bench ARGS={name}`."
            continue
        yield "| | measured | wanted |"
        yield "|---|---|---|"
        for figure in section.figures:
            yield from _rows(figure, entry["result"].get(figure.path))
        yield ""
        yield f"{entry['machine']}, {entry['at'][:10]}."


def _rows(figure: Figure, value: Any) -> Iterator[str]:
    if isinstance(value, dict) and all(not isinstance(item, dict) for item in value.values()):
        yield f"| {figure.words} | {_short(value)} | {figure.wanted} |"
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"| {figure.words}: {key} | {_short(item)} | {figure.wanted} |"
    elif isinstance(value, list):
        for item in value:
            yield f"| {figure.words} | {_short(item)} | {figure.wanted} |"
    else:
        yield f"| {figure.words} | {_short(value)} | {figure.wanted} |"


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {_short(item)}" for key, item in value.items())
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "-" if value is None else str(value)


if __name__ == "__main__":
    print(page(json.loads(RESULTS.read_text())), end="")
