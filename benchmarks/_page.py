"""docs/benchmarks.md, written from results.json whenever a benchmark has run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results.json")


@dataclass(frozen=True)
class Figure:
    """One line of a table: what it is, where in the result it stands, and what we want of it. A figure above `most` or
    below `least` has missed its target."""

    words: str
    path: str
    aim: str = ""
    most: float | None = None
    least: float | None = None

    @property
    def wanted(self) -> str:
        limits = (("at most", self.most), ("at least", self.least))
        return self.aim or ", ".join(f"{word} {limit:g}" for word, limit in limits if limit is not None)

    def missed(self, value: Any) -> bool:
        if not isinstance(value, int | float):
            return False
        return (self.most is not None and value > self.most) or (self.least is not None and value < self.least)


@dataclass(frozen=True)
class Section:
    title: str
    text: str
    figures: tuple[Figure, ...]


SECTIONS = {
    "bulk": Section(
        "Bulk replay",
        "The take-rate join of a day (impressions left-joined with a tenth as many playbacks), planned and run by"
        " `rekappa backfill`, against the same join as a hand-written Spark batch job. Whole commands, the start of"
        " Python and Spark included, with the same memory, collector and codec.",
        (
            Figure("impressions", "rows"),
            Figure("time to the simplest batch job", "bulk_to_plain"),
            Figure("time to the same job tuned by hand", "bulk_to_tuned", most=0.9),
            Figure("seconds until the work begins", "bulk_until_work", most=4),
            Figure("the work alone, to the simplest job's", "work_to_plain"),
            Figure("the work alone, to the tuned job's", "work_to_tuned"),
            Figure("rows per second, start included", "bulk_rows_per_second"),
            Figure("seconds", "seconds"),
        ),
    ),
    "lookups": Section(
        "Lookups that travel in time",
        "A day of events joined with a table of versions as of each event's time, in bulk, against the same backfill"
        " with the table of today; and the two joins alone.",
        (
            Figure("events", "rows"),
            Figure("keys", "keys"),
            Figure("versions", "versions"),
            Figure("time to the backfill with today's table", "as_of_to_today", "at most 2"),
            Figure("time of the join alone to that with today's table", "join_as_of_to_today"),
            Figure("events per second", "events_per_second"),
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
        "All columns of the archive, one slice per micro-batch, into a no-op sink, against Spark's own vectorised"
        " Parquet reader on the same files; planning included. Slices of an hour are whole files, slices of 15 minutes"
        " cut every file into four.",
        (
            Figure("rows", "rows"),
            Figure("slices", "slices"),
            Figure("time to Spark's Parquet reader, whole files", "whole_to_parquet", most=2),
            Figure("time to Spark's Parquet reader, files that are cut", "cut_to_parquet", most=2),
            Figure("the same slices of files that end where slices do: cut to not cut", "cut_to_uncut"),
            Figure("time to Spark's own file stream in as many micro-batches", "cut_to_own_stream"),
            Figure("that stream's time to Spark's Parquet reader", "own_stream_to_parquet"),
            Figure(
                "of a topic with four times the traffic: to Spark's Parquet reader, files that are cut",
                "busy_to_parquet",
            ),
            Figure("rows per second, whole files", "rows_per_second"),
            Figure("seconds", "seconds"),
        ),
    ),
    "ordered": Section(
        "Ordered replay",
        "The same take-rate join by `rekappa backfill --mode ordered`, in micro-batches with state, against the tuned"
        " batch job; whole commands.",
        (
            Figure("impressions", "rows"),
            Figure("time to the tuned job, default slices", "default_to_tuned", most=3),
            Figure("variants", "variants"),
        ),
    ),
    "state": Section(
        "State of a replay",
        "Peak state rows of two hours of the take-rate join in ordered mode, by span of its slices, against a live run"
        " of it from Kafka in micro-batches of a minute.",
        (
            Figure("rows, live", "live_rows"),
            Figure("micro-batches, live", "live_batches"),
            Figure("slices", "slices"),
        ),
    ),
    "sessions": Section(
        "Custom state",
        "The sessions app (`transformWithState` with timers): a day in bulk, and its first two hours in ordered mode,"
        " where Spark's state store takes about a millisecond an event.",
        (
            Figure("events of the day", "rows"),
            Figure("events per second, bulk to ordered, slices of 15 minutes", "bulk_to_ordered_15_min", least=40),
            Figure("events per second, bulk to ordered", "bulk_to_ordered"),
            Figure("events per second in bulk", "bulk_events_per_second"),
            Figure("share of the app's own code in bulk", "share_of_own_code"),
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
        " has 10,080), of the metadata of a live sink whose snapshots last as long as a quarter of its commits, of an"
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
    "catch_up": Section(
        "Catching up from the archive",
        "The take-rate join of a day as a live run reads the archive past Kafka's retention (Kafka's own offsets, one"
        " source for each topic and region, all columns), against a strict backfill of the same slices.",
        (
            Figure("impressions", "rows"),
            Figure("micro-batches", "micro_batches"),
            Figure("time to the strict backfill", "to_strict", most=1.2),
            Figure("seconds", "seconds"),
        ),
    ),
    "live_join": Section(
        "Files of a live join over a day",
        "A join from Kafka with 16 state stores, 288 micro-batches of five minutes each, with automatic savepoints:"
        " files in quarters of the day. Savepoints and the table's snapshots are kept for three days, so that these"
        " level off after that.",
        (
            Figure("micro-batches", "micro_batches"),
            Figure("after so much of the day", "quarters"),
            Figure("Spark's log: the end to the half", "end_to_half.log", most=1.25),
            Figure("state: the end to the half", "end_to_half.state", most=1.25),
            Figure("savepoints: the end to the half", "end_to_half.savepoints", "less than 2, thinned out"),
            Figure("the table's metadata: the end to the half", "end_to_half.metadata"),
        ),
    ),
    "checkpoints": Section(
        "Restart points",
        "What `rekappa checkpoints` takes to find the restart points of a join with 16 state stores, by batches kept;"
        " and with all automatic savepoints of three days beside 200 batches.",
        (
            Figure("batches kept", "kept", "1,000 in under a second"),
            Figure("three days", "three_days"),
        ),
    ),
    "router": Section(
        "Archiving",
        "The router against the plainest Spark job that writes the topic, payload and Kafka's position, to Parquet.",
        (
            Figure("messages", "messages"),
            Figure("throughput to the plain job", "throughput_to_plain", least=0.8),
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
        (Figure("rows a side", "rows"), Figure("time to the join", "validate_to_join", most=1.5)),
    ),
    "publish": Section(
        "Publishing",
        "One hour replaced in tables of 10, 100 and 1000 hours.",
        (
            Figure("by hours in the table", "hours"),
            Figure("time, 1000 hours to 10", "time_1000_to_10_hours", "1: follows the window", most=1.5),
            Figure("time of an undo, 1000 hours to 10", "undo_1000_to_10_hours", "1: follows the window", most=1.5),
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
            Figure("slowest page", "slowest", most=200),
            Figure("seconds until all commands had answered", "seconds_in_the_background"),
        ),
    ),
    "rate": Section(
        "Rate limit",
        "Rows per second that get through, as a share of the cap; what the operator costs.",
        (
            Figure("kept", "kept", "within 10 %"),
            Figure("cost", "cost", "none when unset"),
            Figure("time of a scan with a cap that is not reached", "cost.never_reached_to_plain", most=2),
        ),
    ),
}


def missed(name: str, result: Mapping[str, Any]) -> list[str]:
    """Every target of a benchmark that its result misses, in words."""
    found = [(figure, value_at(result, figure.path)) for figure in SECTIONS[name].figures]
    return [f"{figure.words}: {value}, wanted {figure.wanted}" for figure, value in found if figure.missed(value)]


def value_at(result: Mapping[str, Any], path: str) -> Any:
    """What stands at a path of names with dots between them; None where nothing does."""
    found: Any = result
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def page(results: dict[str, Any]) -> str:
    """The whole page, ending in a line feed."""
    return "\n".join(_lines(results)) + "\n"


def _lines(results: dict[str, Any]) -> Iterator[str]:
    yield "# How fast it is"
    yield ""
    yield "Written by `python -m benchmarks._page` from benchmarks/results.json, which `make bench` fills; a test"
    yield "compares the two. Figures of one run on one shared machine: read the ratios, which are taken inside one run."
    yield "`make bench` fails where a target is missed."
    for name, section in SECTIONS.items():
        yield from ("", f"## {section.title}", "", section.text, "")
        entry = results.get(name)
        if entry is None:
            yield f"Not measured yet: `make bench ARGS={name}`."
            continue
        yield "| | measured | wanted |"
        yield "|---|---|---|"
        for figure in section.figures:
            yield from _rows(figure, value_at(entry["result"], figure.path))
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
        wanted = f"{figure.wanted}: **missed**" if figure.missed(value) else figure.wanted
        yield f"| {figure.words} | {_short(value)} | {wanted} |"


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {_short(item)}" for key, item in value.items())
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "-" if value is None else str(value)


if __name__ == "__main__":
    print(page(json.loads(RESULTS.read_text())), end="")
