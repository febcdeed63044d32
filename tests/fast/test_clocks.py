"""Margins fitted to the archive: real Iceberg tables, and an oracle in plain Python of what each output needs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog

from rekappa.errors import PlanError
from rekappa.iceberg.times import wall_clock
from rekappa.plan.chunks import whole_hours
from rekappa.plan.margins import Margins
from rekappa.plan.outside import Demand, Outside, Piece
from rekappa.planning.clocks import Clock, Fitted, Told, clock, fitted
from rekappa.timeline import Window, micros

T0 = datetime(2026, 11, 1, tzinfo=UTC)
M = timedelta(minutes=1)
FREE = Told()
NUMBERS = itertools.count()
BERLIN = "Europe/Berlin"
META = pa.struct([("kafka_ingestion_ts", pa.timestamp("us", "UTC")), ("region", pa.string())])
TYPES = {
    "at": pa.timestamp("us", "UTC"), "local": pa.timestamp("us"), "day": pa.date32(), "text": pa.string(),
}  # fmt: skip


@dataclass(frozen=True)
class Event:
    happened: datetime
    ingested: datetime


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    folder: Path = tmp_path_factory.mktemp("clocks")
    made = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    made.create_namespace("events")
    yield made
    made.close()


def table(catalog: SqlCatalog, files: Sequence[Sequence[Event]], zone: str = "UTC") -> Any:
    """One file for each list of events, in row groups of two."""
    schema = pa.schema([*TYPES.items(), ("__metadata__", META)])
    properties = {"write.parquet.row-group-limit": "2"}
    made = catalog.create_table(f"events.t{next(NUMBERS)}", schema, properties=properties)
    for events in files:
        rows = [
            {
                "at": event.happened,
                "local": event.happened.astimezone(ZoneInfo(zone)).replace(tzinfo=None),
                "day": event.happened.astimezone(ZoneInfo(zone)).date(),
                "text": event.happened.isoformat(),
                "__metadata__": {"kafka_ingestion_ts": event.ingested, "region": "eu"},
            }
            for event in events
        ]
        made.append(pa.Table.from_pylist(rows, schema))
    return made


def fit(
    made: Any, margins: Margins, window: Window, *, column: str = "at", own: bool = True, zone: str = "UTC",
    told: Told = FREE,
) -> Fitted:  # fmt: skip
    found = clock(made, "events", column, own, margins.wanted(window), (), zone, told)
    assert isinstance(found, Clock)
    return fitted(margins, [found], lambda now: [window], told)


def missed(events: Sequence[Event], fit: Fitted, *, early: bool) -> set[Event]:
    """The events that an output needs and does not read."""
    found = set()
    for output in fit.outputs:
        for event in events:
            needed = output.start - fit.margins.before <= event.happened < output.end + fit.margins.after
            reads = fit.margins.reads(output)
            if needed and (event.ingested < reads.start if early else event.ingested >= reads.end):
                found.add(event)
    return found


minutes = st.integers(0, 300)
drawn = st.builds(
    lambda at, late: Event(T0 + at * M, T0 + (at + late) * M), minutes, st.integers(-90, 60) | st.integers(-2, 5)
)
archives = st.lists(st.lists(st.lists(drawn, min_size=1, max_size=4), min_size=1, max_size=3), max_size=4)


def in_memory(files: list[list[list[Event]]], own: bool) -> Clock:
    """The same clock over events at hand, in files of row groups."""

    def piece(path: int, events: list[Event], group: int | None) -> Piece:
        happened, ingested = ([micros(getattr(e, name)) for e in events] for name in ("happened", "ingested"))
        ends = (min(happened), max(happened)), (min(ingested), max(ingested))
        return Piece(str(path), len(events), *ends, group)

    def look(part: Piece, demand: Demand) -> Outside:
        total = Outside()
        for event in files[int(part.path)][part.group or 0]:
            at, taken = micros(event.happened), micros(event.ingested)
            if demand.wanted[0] <= at < demand.wanted[1] and taken < demand.reads[0]:
                total = total.plus(Outside(early=1, earliest=taken, ahead=at - taken))
            if demand.wanted[0] <= at < demand.wanted[1] and taken >= demand.reads[1]:
                total = total.plus(Outside(late=1, latest=taken, behind=taken - at))
        return total

    whole = tuple(piece(n, [event for part in file for event in part], None) for n, file in enumerate(files))
    parts = {str(n): [piece(n, part, at) for at, part in enumerate(file)] for n, file in enumerate(files)}
    return Clock("events", "at", own, whole, lambda file: parts[file.path], look)


@settings(max_examples=150, deadline=None)
@given(archives, st.integers(0, 200), st.integers(1, 120), st.integers(0, 15), st.integers(0, 15), st.booleans())
def test_every_event_that_any_output_needs_is_read_however_far_ahead(
    files: list[list[list[Event]]], start: int, length: int, before: int, after: int, chunks: bool
) -> None:
    """The window is one output, or, as in bulk, several that each read for themselves and are as long as margins."""
    every = [event for file in files for part in file for event in part]
    window = Window(T0 + start * M, T0 + (start + length) * M)
    margins = Margins(before=before * M, ahead=M, after=after * M, drain=(after + 5) * M)

    def outputs(now: Margins) -> list[Window]:
        step = max(20 * M if chunks else window.length, now.warm_up + now.drain)
        starts = [window.start + n * step for n in range(-(-window.length // step))]
        return [Window(at, min(at + step, window.end)) for at in starts]

    own = fitted(margins, [in_memory(files, True)], outputs, FREE)
    assert not missed(every, own, early=True)
    assert own.margins.drain == margins.drain
    assert bool(missed(every, own, early=False)) == any("late events" in note for note in own.notes)
    other = fitted(margins, [in_memory(files, False)], outputs, FREE)
    assert not missed(every, other, early=True)
    assert not missed(every, other, early=False)
    assert other.notes == ()
    limited = fitted(margins, [in_memory(files, True)], outputs, Told(clock_skew=M))
    assert limited.margins == margins
    assert bool(missed(every, limited, early=True)) == any("--clock-skew" in note for note in limited.notes)


def test_a_tenth_of_a_second_ahead_is_within_the_margin_that_is_always_read(catalog: SqlCatalog) -> None:
    second = timedelta(seconds=1)
    window = Window(T0 + 780 * M, T0 + 840 * M)
    event = Event(window.start + 0.2 * second, window.start - 0.1 * second)
    found = fit(table(catalog, [[event]]), Margins(ahead=M, drain=15 * M), window)
    assert found.margins == Margins(ahead=M, drain=15 * M)
    assert not missed([event], found, early=True)


def test_a_scheduled_time_extends_the_warm_up_and_the_plan_says_how_far(catalog: SqlCatalog) -> None:
    window = Window(T0 + 780 * M, T0 + 840 * M)
    events = [Event(T0 + (600 + n) * M, T0 + (400 + n) * M) for n in range(100, 250, 10)]
    made = table(catalog, [events[:7], events[7:]])
    found = fit(made, Margins(ahead=M, drain=15 * M), window)
    assert found.margins.ahead == 200 * M
    assert found.margins.warm_up_reason == "3h 20m for event times up to 3h 20m ahead of ingestion"
    limited = fit(made, Margins(ahead=M, drain=15 * M), window, told=Told(clock_skew=M))
    assert limited.margins.ahead == M
    assert "6 events of source 'events' have 'at' ahead of their ingestion by up to 3h 20m" in limited.notes[0]
    assert "--clock-skew '3h 20m'" in limited.notes[0]
    assert not fit(made, Margins(ahead=200 * M, drain=M), window, told=Told(clock_skew=200 * M)).notes


def test_late_events_are_named_only_if_they_are_there_with_how_many_and_how_late(catalog: SqlCatalog) -> None:
    window = Window(T0, T0 + 60 * M)
    wide = [Event(T0 - 600 * M, T0 - 600 * M), Event(T0 + 600 * M, T0 + 600 * M)]
    assert fit(table(catalog, [wide]), Margins(ahead=M, drain=15 * M), window).notes == ()
    late = [Event(T0 + 30 * M, T0 + 150 * M), Event(T0 + 59 * M, T0 + 90 * M)]
    (note,) = fit(table(catalog, [wide + late]), Margins(ahead=M, drain=15 * M), window).notes
    assert note.startswith("2 late events of source 'events', ingested up to 2h after they happened")
    assert "--drain '1h 31m' reads them" in note


@pytest.fixture(scope="module")
def due(catalog: SqlCatalog) -> tuple[Any, list[Event]]:
    """Thirty days, written as Berlin's clocks and calendars had them, each ingested ten days ahead."""
    day = timedelta(days=1)
    events = [Event(T0 + (n - 10) * day, T0 + (n - 20) * day) for n in range(30)]
    return table(catalog, [events[:15], events[15:]], BERLIN), events


@pytest.mark.parametrize("zone", ["UTC", BERLIN, "Pacific/Chatham", "+02:00", "GMT-5", "America/New_York"])
@pytest.mark.parametrize("column", ["local", "day"])
def test_days_and_local_times_are_moments_of_the_sessions_time_zone(
    due: tuple[Any, list[Event]], column: str, zone: str
) -> None:
    made, events = due
    fixed = {"+02:00": timezone(timedelta(hours=2)), "GMT-5": timezone(timedelta(hours=-5))}
    place = fixed.get(zone) or ZoneInfo(zone)
    window = Window(*(datetime(2026, 11, day, tzinfo=place).astimezone(UTC) for day in (5, 7)))
    found = fit(made, Margins(ahead=M), window, column=column, own=False, zone=zone)
    reads = found.margins.reads(window)
    counted = 0
    for event in events:
        local = event.happened.astimezone(ZoneInfo(BERLIN)).replace(tzinfo=None)
        moment = (local.replace(hour=0) if column == "day" else local).replace(tzinfo=place)
        if window.contains(moment.astimezone(UTC)):
            counted += 1
            assert reads.contains(event.ingested)
    assert counted == 2
    assert timedelta(days=8) < found.margins.ahead < timedelta(days=11)


def test_a_column_that_is_no_time_is_refused_unless_its_distance_was_told(catalog: SqlCatalog) -> None:
    made = table(catalog, [[Event(T0, T0)]])
    window = Window(T0, T0 + M)
    with pytest.raises(PlanError, match=r"'text' of source 'events'.*it is a string") as refused:
        clock(made, "events", "text", False, window, (), "UTC", Told(drain=M))
    assert "--clock-skew" in str(refused.value.hint)
    said = clock(made, "events", "text", False, window, (), "UTC", Told(M, M))
    assert isinstance(said, str)
    assert said.startswith("Not checked: how far 'text'")
    assert isinstance(clock(made, "events", "text", True, window, (), "UTC", Told()), str)


def test_a_column_that_the_table_does_not_have_yet_holds_no_event(catalog: SqlCatalog) -> None:
    made = table(catalog, [[Event(T0, T0 - 90 * M)]])
    window = Window(T0, T0 + M)
    assert fit(made, Margins(ahead=M), window, column="later", own=False).margins == Margins(ahead=M)


@settings(max_examples=100, deadline=None)
@given(
    st.datetimes(datetime(2026, 10, 31), datetime(2026, 11, 2)), st.sampled_from(["America/New_York", BERLIN, "UTC"])
)
def test_a_bound_on_a_local_clock_parts_the_same_rows_as_the_instant(moment: datetime, name: str) -> None:
    """Across the night in which New York's clocks go back: rows before the bound are those before the instant."""
    here, instant = ZoneInfo(name), moment.replace(tzinfo=UTC)
    bound = wall_clock(instant, here)
    for minutes in range(-180, 181, 7):
        row = bound.replace(tzinfo=None) + timedelta(minutes=minutes)
        assert (row < bound.replace(tzinfo=None)) == (row.replace(tzinfo=here).astimezone(UTC) < instant)


@pytest.mark.parametrize(("came", "named"), [(85, False), (119, False), (121, True)])
def test_bulk_reads_whole_hours_and_says_only_what_lies_behind_them(came: int, named: bool) -> None:
    """The window's drain ends at minute 80; what came until the full hour is read all the same."""
    late = Event(T0 + 10 * M, T0 + came * M)
    window, margins = Window(T0, T0 + 60 * M), Margins(ahead=M, drain=20 * M)
    found = fitted(margins, [in_memory([[[late]]], True)], lambda now: [window], FREE, whole_hours)
    assert found.complete is not named
    assert ["--drain '1h 2m' reads them" in note for note in found.notes] == ([True] if named else [])
