"""Values and times of a file: converted exactly or refused, and encoded so that a reader gets them back."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekappa.config.ddl import columns
from rekappa.config.model import Source
from rekappa.produce.avro import avro_bytes
from rekappa.produce.convert import convert
from rekappa.produce.encode import encoder
from rekappa.produce.files import open_rows
from rekappa.produce.moments import TimeReading, read_moment
from rekappa.timeline import EPOCH

LONG = "12345678901234567890123456789012.345678"
LIVE = {"type": "kafka", "topic": "t"}
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
SCHEMA = (
    "b BOOLEAN, i INT, n BIGINT, x DOUBLE, d DECIMAL(38, 6), s STRING, raw BINARY, day DATE, at TIMESTAMP, "
    "local TIMESTAMP_NTZ, tags ARRAY<STRING>, counts MAP<STRING, BIGINT>, inner STRUCT<a: INT, z: ARRAY<DOUBLE>>"
)


@pytest.mark.parametrize(
    ("value", "clock"),
    [
        ("2026-11-01T12:00:00Z", TimeReading()),
        ("2026-11-01 14:00:00+02:00", TimeReading()),
        ("2026-11-01 07:00 America/New_York", TimeReading()),
        ("2026-11-01 12:00", TimeReading()),
        ("2026-11-01 13:00:00.000000", TimeReading(zone="Europe/Berlin")),
        ("20261101T120000Z", TimeReading()),
        ("01.11.2026 13:00", TimeReading("%d.%m.%Y %H:%M", "Europe/Berlin")),
        ("Nov 1, 2026 12:00:00 +0000", TimeReading("%b %d, %Y %H:%M:%S %z", "Asia/Tokyo")),
        (1793534400, TimeReading()),
        (1793534400000, TimeReading()),
        ("1793534400000000", TimeReading()),
        (1793534400 * 10**9, TimeReading()),
        (1793534400.0, TimeReading()),
        ("1793534400", TimeReading("epoch-s")),
        (NOON, TimeReading(zone="Asia/Tokyo")),
        (datetime(2026, 11, 1, 21), TimeReading(zone="Asia/Tokyo")),
    ],
)
def test_times_in_their_usual_writings(value: Any, clock: TimeReading) -> None:
    assert read_moment(value, clock) == NOON


def test_a_date_is_its_midnight_where_the_clock_hangs() -> None:
    assert read_moment("20261101", TimeReading(zone="Asia/Tokyo")) == NOON - timedelta(hours=21)
    assert read_moment(date(2026, 11, 1), TimeReading()) == NOON - timedelta(hours=12)


@pytest.mark.parametrize(
    ("value", "clock", "words"),
    [
        ("yesterday", TimeReading(), "is no time that can be read without --time-format"),
        ("01.11.2026", TimeReading(), "without --time-format"),
        ("2026-11-01", TimeReading("%d.%m.%Y"), "no time written as %d.%m.%Y"),
        (12, TimeReading(), "may be many times: say which"),
        ("soon", TimeReading("epoch-s"), "is no number"),
        (float("nan"), TimeReading(), "is no time"),
        (True, TimeReading(), "is no time"),
        (10**30, TimeReading("epoch-s"), "outside the years 1 to 9999"),
        ("2026-03-29 02:30", TimeReading(zone="Europe/Berlin"), "put forward past it"),
        ("2026-10-25 02:30", TimeReading(zone="Europe/Berlin"), "showed it twice"),
    ],
)
def test_times_that_are_none_are_refused(value: Any, clock: TimeReading, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        read_moment(value, clock)


@given(st.datetimes(datetime(1973, 6, 1), datetime(5000, 1, 1)), st.sampled_from([("s", 6), ("ms", 3), ("us", 0)]))
def test_a_number_is_the_same_time_whatever_its_unit(moment: datetime, unit: tuple[str, int]) -> None:
    name, zeros = unit
    whole = moment.replace(tzinfo=UTC) - EPOCH
    number = whole // timedelta(microseconds=1) // 10**zeros
    expected = EPOCH + number * timedelta(microseconds=10**zeros)
    assert read_moment(number, TimeReading()) == read_moment(str(number), TimeReading(f"epoch-{name}")) == expected


@pytest.mark.parametrize(
    ("text", "kind", "made"),
    [
        ("7", "INT", 7),
        (7.0, "BIGINT", 7),
        ("true", "BOOLEAN", True),
        ("0", "BOOLEAN", False),
        ("1.50", "DECIMAL(3, 1)", Decimal("1.50")),
        (0.1, "DECIMAL(3, 1)", Decimal("0.1")),
        (LONG, "DECIMAL(38, 6)", Decimal(LONG)),
        ("2026-11-01", "DATE", date(2026, 11, 1)),
        ("2026-11-01T12:00", "TIMESTAMP_NTZ", datetime(2026, 11, 1, 12)),
        (7, "STRING", "7"),
        ({"a": 1}, "STRING", '{"a": 1}'),
        ("aGk=", "BINARY", b"hi"),
        ('["a", null]', "ARRAY<STRING>", ["a", None]),
        ([("a", 1)], "MAP<STRING, INT>", {"a": 1}),
        ('{"a": "3", "q": 1}', "STRUCT<a: INT, b: STRING>", {"a": 3, "b": None}),
        ('{"a": [1]}', "VARIANT", {"a": [1]}),
        (None, "INT", None),
    ],
)  # fmt: skip
def test_values_as_the_schema_declares_them(text: Any, kind: str, made: Any) -> None:
    (column,) = columns(f"c {kind}")
    found = convert(text, column.type, TimeReading())
    assert found == made
    assert type(found) is type(made)


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        ("1_000", "BIGINT", "'1_000' is no BIGINT"),
        ("7.5", "INT", "is no INT"),
        (7.5, "INT", "7.5 is no INT"),
        (True, "INT", "is no INT"),
        ("3000000000", "INT", "too large for INT"),
        ("300", "TINYINT", "too large for TINYINT"),
        ("1e39", "FLOAT", "too large for FLOAT"),
        ("x", "DOUBLE", "is no DOUBLE"),
        ("1e400", "DOUBLE", "too large for DOUBLE"),
        (9007199254740993, "DOUBLE", "more digits than a DOUBLE holds"),
        ("9007199254740993", "DOUBLE", "more digits than a DOUBLE holds"),
        ("1.55", "DECIMAL(3, 1)", "more than 1 digits after the point"),
        ("100", "DECIMAL(3, 1)", "too large for DECIMAL(3, 1)"),
        ("NaN", "DECIMAL(3, 1)", "is no DECIMAL"),
        ("maybe", "BOOLEAN", "is no BOOLEAN"),
        ("2026-13-01", "DATE", "is no time"),
        ("%", "BINARY", "base64"),
        ("[1", "ARRAY<INT>", "is no ARRAY<INT>"),
        ("[1]", "STRUCT<a: INT>", "is no STRUCT"),
        ("3", "MAP<STRING, INT>", "is no MAP"),
        ('{"a": "x"}', "STRUCT<a: INT>", "a 'x' is no INT"),
    ],
)
def test_nothing_is_cut_to_fit(value: Any, kind: str, words: str) -> None:
    (column,) = columns(f"c {kind}")
    with pytest.raises(ValueError, match=re.escape(words)):
        convert(value, column.type, TimeReading())


def source(form: str, schema: str = SCHEMA) -> Source:
    candidates = {"live": {"type": "kafka", "topic": "t"}}
    return Source.model_validate({"schema": schema, "format": form, "event_time": "at", "candidates": candidates})


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


naive = st.datetimes(datetime(1600, 1, 1), datetime(2400, 1, 1))
events = st.fixed_dictionaries(
    {
        "b": maybe(st.booleans()),
        "i": maybe(st.integers(-(2**31), 2**31 - 1)),
        "n": maybe(st.integers(-(2**63), 2**63 - 1)),
        "x": maybe(st.floats(allow_nan=False)),
        "d": maybe(st.decimals(-(10**30), 10**30, places=6)),
        "s": maybe(st.text()),
        "raw": maybe(st.binary()),
        "day": maybe(st.dates(date(1600, 1, 1), date(2400, 1, 1))),
        "at": maybe(naive.map(lambda moment: moment.replace(tzinfo=UTC))),
        "local": maybe(naive),
        "tags": maybe(st.lists(maybe(st.text()))),
        "counts": maybe(st.dictionaries(st.text(), maybe(st.integers(-(2**63), 2**63 - 1)))),
        "inner": maybe(
            st.fixed_dictionaries({"a": maybe(st.integers(0, 9)), "z": maybe(st.lists(st.floats(allow_nan=False)))})
        ),
    }
)


@given(events)
@settings(max_examples=40)
def test_avro_is_what_another_reader_reads(event: dict[str, Any]) -> None:
    schema = json.loads(_avro(SCHEMA))
    made = avro_bytes(schema, event)
    read = fastavro.schemaless_reader(io.BytesIO(made), fastavro.parse_schema(schema), None)
    assert read == event


def _avro(ddl: str) -> str:
    from rekappa.config.schema import avro_schema

    return avro_schema(source("avro", ddl), Path())


def test_avro_schemas_with_names_enums_and_fixed() -> None:
    schema = {
        "type": "record", "name": "E", "namespace": "shop", "fields": [
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}},
            {"name": "other", "type": ["null", "Kind"]},
            {"name": "hash", "type": {"type": "fixed", "name": "H", "size": 2}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }  # fmt: skip
    event = {"kind": "b", "other": "a", "hash": b"hi", "at": NOON}
    made = avro_bytes(schema, event)
    assert fastavro.schemaless_reader(io.BytesIO(made), fastavro.parse_schema(schema), None) == event
    for wrong in ({"kind": "c"}, {"hash": b"x"}, {"at": None}):
        with pytest.raises(ValueError, match=r"none of|has not|is null"):
            avro_bytes(schema, {**event, **wrong})


@given(events)
@settings(max_examples=40)
def test_json_gives_every_value_back_by_its_own_type(event: dict[str, Any]) -> None:
    read = json.loads(encoder(source("json"), Path())(event), parse_float=Decimal, parse_int=int)
    clock, types = TimeReading(), {column.name: column.type for column in columns(SCHEMA)}
    assert {name: convert(value, types[name], clock) for name, value in read.items()} == event


def test_a_wall_clocks_time_is_not_moved() -> None:
    (column,) = columns("local TIMESTAMP_NTZ")
    moment = NOON.astimezone(ZoneInfo("Asia/Tokyo"))
    assert convert(moment, column.type, TimeReading(zone="Asia/Tokyo")) == datetime(2026, 11, 1, 21)


@pytest.mark.parametrize(
    ("line", "schema", "sent"),
    [
        ('{"v": 9007199254740993.0}', "v BIGINT", "9007199254740993"),
        ('{"v": 123456789012345678.12}', "v DECIMAL(30, 2)", "123456789012345678.12"),
        ('{"v": 1.10}', "v STRING", '"1.10"'),
        ('{"v": 12345678901234567890.50}', "v STRING", '"12345678901234567890.50"'),
        ('{"v": {"x": 0.12345678901234567890123, "p": [2.50]}}', "v STRING",
         r'"{\"x\": 0.12345678901234567890123, \"p\": [2.50]}"'),
        ('{"v": {"x": 0.12345678901234567890123}}', "v STRUCT<x: DECIMAL(38, 23)>", '{"x": 0.12345678901234567890123}'),
        ('{"v": 0.1}', "v DOUBLE", "0.1"),
    ],
)  # fmt: skip
def test_numbers_of_json_lines_keep_every_digit(tmp_path: Path, line: str, schema: str, sent: str) -> None:
    (tmp_path / "rows.jsonl").write_text(line)
    (column,) = columns(schema)
    row = next(open_rows(tmp_path / "rows.jsonl").rows)
    assert row.problem is None
    source = Source.model_validate({"schema": schema, "event_time": "v", "candidates": {"live": LIVE}})
    made = encoder(source, tmp_path)({"v": convert(row.values["v"], column.type, TimeReading())})
    assert made.decode() == f'{{"v": {sent}}}'


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (Decimal("12345678.9100000000001"), "DECIMAL(10, 2)", "12345678.9100000000001 has more than 2 digits"),
        (Decimal("9007199254740993.0"), "DOUBLE", "9007199254740993.0 has more digits than a DOUBLE holds"),
        (Decimal("1e400"), "DOUBLE", "1E+400 is too large for DOUBLE"),
        ("2025-11-02T01:30", "DATE", "has a time of day, which a DATE does not"),
        (datetime(2026, 11, 1, 21), "DATE", "has a time of day"),
        ("\ud800", "STRING", "is no text that UTF-8 can write"),
        (b"\xe9", "STRING", "is no text that UTF-8 can write"),
    ],
)  # fmt: skip
def test_what_would_lose_something_is_refused(value: Any, kind: str, words: str) -> None:
    (column,) = columns(f"v {kind}")
    with pytest.raises(ValueError, match=re.escape(words)):
        convert(value, column.type, TimeReading())
