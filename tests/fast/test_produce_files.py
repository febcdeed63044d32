"""`rekappa produce` up to Kafka's door: every kind of file, every refusal, nothing sent."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from rekappa.cli.main import main
from rekappa.config.model import Source
from rekappa.errors import ConfigError, InputError
from rekappa.produce.encode import encoder
from rekappa.produce.events import Checked, Reading, Shaper, check, require_sound
from rekappa.produce.files import open_rows
from rekappa.produce.spool import Spool
from rekappa.produce.topics import topic_exists

SOURCE = Source.model_validate(
    {
        "schema": "id BIGINT, who STRING, amount DOUBLE, at TIMESTAMP",
        "event_time": "at",
        "candidates": {"live": {"type": "kafka", "topic": "orders"}},
    }
)
ROWS = [(1, "ann", 1.5, "2026-11-01T12:00:02Z"), (2, "bob", None, "2026-11-01T12:00:01Z")]
EXPECTED = [
    (1793534401000, {"id": 2, "who": "bob", "amount": None, "at": "2026-11-01T12:00:01Z"}),
    (1793534402000, {"id": 1, "who": "ann", "amount": 1.5, "at": "2026-11-01T12:00:02Z"}),
]


def read(path: Path, reading: Reading = Reading(), **options: Any) -> tuple[Checked, list[tuple[int, Any]]]:  # noqa: B008
    file = open_rows(path, **options)
    with Spool("orders") as spool:
        found = check(file, Shaper(SOURCE, path.parent, encoder(SOURCE, path.parent), file, reading), spool)
        require_sound(file, found, skip_bad=False)
        return found, [(one.millis, json.loads(one.value)) for one in spool.messages()]


def test_every_kind_of_file_gives_the_same_events_in_the_order_of_time(tmp_path: Path) -> None:
    text = "ID,who,amount,at,more\n" + "".join(f"{a},{b},{'' if c is None else c},{d},x\n" for a, b, c, d in ROWS)
    (tmp_path / "a.csv").write_text("\ufeff" + text)
    (tmp_path / "a.tsv").write_text(text.replace(",", "\t"))
    with gzip.open(tmp_path / "a.csv.gz", "wt") as packed:
        packed.write(text)
    objects = [dict(zip(("id", "who", "amount", "at", "more"), (*row, "x"), strict=True)) for row in ROWS]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(one) for one in objects) + "\n\n")
    times = pa.array([datetime.fromisoformat(row[3]) for row in ROWS], pa.timestamp("ns", "UTC"))
    table = pa.table({"id": [1.0, 2.0], "who": ["ann", "bob"], "amount": [1.5, None], "at": times, "more": ["x", "x"]})
    pq.write_table(table, tmp_path / "a.parquet")
    for path in sorted(tmp_path.iterdir()):
        found, messages = read(path)
        assert messages == EXPECTED, path
        assert (found.rows, found.sound, found.left_out, found.absent) == (2, 2, ("more",), ()), path
        assert found.first == datetime(2026, 11, 1, 12, 0, 1, tzinfo=UTC)


def test_the_time_column_is_the_event_time_where_the_file_has_none(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id;when\n1;01.11.2026 13:00\n")
    reading = Reading("when", {"": "%d.%m.%Y %H:%M"}, "Europe/Berlin", "id")
    found, messages = read(tmp_path / "a.csv", reading, delimiter=";")
    assert messages == [(1793534400000, {"id": 1, "who": None, "amount": None, "at": "2026-11-01T12:00:00Z"})]
    assert found.absent == ("who", "amount")


BAD = """id,who,amount,at
1,ann,1.5,2026-11-01T12:00:00Z
x,ann,1.5,2026-11-01T12:00:00Z
3,"a
b",1.5,yesterday
4,ann,1.5
5,ann,1.5,
6,ann,1.5,1969-12-31T23:59:59Z
"""


def test_bad_rows_are_told_by_line_and_value(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(BAD)
    with pytest.raises(InputError) as told:
        read(tmp_path / "a.csv")
    assert "5 of 6 rows are no events" in told.value.message
    for words in (
        "line 3: id 'x' is no BIGINT",
        "line 4: at 'yesterday' is no time",
        "line 6: has 3 cells, the first line names 4 columns",
        "line 7: at is empty",
        "line 8: at 1969-12-31T23:59:59Z is before 1970",
    ):
        assert words in told.value.message
    assert told.value.hint == "Correct them, or leave them out: --skip-bad. Nothing was sent."
    (tmp_path / "a.jsonl").write_text('{"id": 1, "at": "2026-11-01T12:00Z"}\n{"id": \n[1]\n{"id": 2}\n')
    with pytest.raises(InputError, match=r"(?s)line 2: '{\"id\":' is no JSON.*line 3:.*object.*line 4: at is empty"):
        read(tmp_path / "a.jsonl")


def test_what_stands_twice_and_what_nobody_declared_is_told(tmp_path: Path) -> None:
    at = '"at": "2026-11-01T12:00Z"'
    lines = [f'{{"id": 1, "id": 2, {at}}}', f'{{"id": 1, "ID": 2, {at}}}', f'{{"id": 1, "amount": 1e400, {at}}}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with pytest.raises(
        InputError, match=r"(?s)line 1: has 'id' twice.*line 2: ID is column 'id' once.*line 3: .*1E[+]400"
    ):
        read(tmp_path / "a.jsonl")
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["id", "id"]), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="column 'id' stands twice"):
        read(tmp_path / "a.parquet")
    kind = "STRUCT<a: INT, more: ARRAY<STRUCT<b: INT>>>"
    nested = SOURCE.model_copy(update={"schema_": f"id BIGINT, s {kind}, at TIMESTAMP"})
    row = {"id": 1, "s": {"a": 1, "x": 2, "more": [{"b": 1}, {"c": 3}]}, "at": "2026-11-01T12:00Z"}
    (tmp_path / "b.jsonl").write_text(json.dumps(row))
    (tmp_path / "b.csv").write_text(f'id,s,at\n1,"{json.dumps(row["s"]).replace(chr(34), chr(34) * 2)}",2026-11-01\n')
    for name in ("b.jsonl", "b.csv"):
        file = open_rows(tmp_path / name)
        with Spool("orders") as spool:
            shaper = Shaper(nested, tmp_path, encoder(nested, tmp_path), file, Reading())
            assert check(file, shaper, spool).left_out == ("s.more.c", "s.x")


@pytest.mark.parametrize(
    ("name", "text", "reading", "words"),
    [
        ("a.xls", "", Reading(), "not a kind of file"),
        ("a.csv", None, Reading(), "No such file"),
        ("a.csv", "", Reading(), "it is empty"),
        ("a.csv", "id,id,at\n", Reading(), "'id' stands twice"),
        ("a.csv", "id,at\n", Reading(), "it has no rows"),
        ("a.csv", "id,when\n1,2\n", Reading(), "Cannot find column 'at' (--time)"),
        ("a.csv", "id,at\n1,2\n", Reading("whn"), "Cannot find column 'whn' (--time)"),
        ("a.csv", "id,at\n1,2\n", Reading(key="who"), "Cannot find column 'who' (--key)"),
        ("a.csv", "x,y\n1,2\n", Reading("x"), "none of the source's columns"),
        ("a.csv", 'id,at\n"1,2\n', Reading(), "the row that begins in line 2 is no CSV"),
        ("a.parquet", "no parquet", Reading(), "Cannot read"),
        ("a.csv.gz", "not packed", Reading(), "Not a gzipped file"),
        ("a.csv", b"id,at\n\xff,2\n", Reading(), "byte 0xff in line 2 is no UTF-8"),
    ],
)
def test_files_that_cannot_be_used(
    tmp_path: Path, name: str, text: str | bytes | None, reading: Reading, words: str
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as told:
        read(path, reading)
    assert words in told.value.message


@given(st.lists(st.tuples(st.integers(1, 50), st.none() | st.binary(max_size=9), st.binary(max_size=50))))
def test_the_spool_gives_back_what_it_got_in_the_order_of_time(rows: list[tuple[int, bytes | None, bytes]]) -> None:
    with Spool("t") as spool:
        for row in rows:
            spool.add(*row)
        made = [(one.millis, one.key, one.value) for one in spool.messages()]
    assert made == sorted(rows, key=lambda row: row[0])


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REKAPPA_HOME", str(tmp_path / ".rekappa"))
    CliRunner().invoke(main, ["new", "shop"])
    return tmp_path


def call(*words: str) -> Result:
    return CliRunner().invoke(main, ["produce", "shop", "events", *words])


def test_the_command_refuses_before_it_touches_anything(shop: Path) -> None:
    (shop / "bad.csv").write_text("id,kind,amount,event_ts\n1,play,much,2026-11-01T12:00Z\n")
    (shop / "good.csv").write_text("id,kind,amount,event_ts\n1,play,1,2026-11-01T12:00Z\n")
    for words, told in (
        (["bad.csv"], "line 2: amount 'much' is no DOUBLE"),
        (["good.csv", "--zone", "Mars/Base"], "there is no such time zone"),
        (["good.csv", "--time-format", "dd.mm"], "Cannot use --time-format 'dd.mm'"),
        (["good.csv", "--region", "eu"], "Cannot find region 'eu'"),
        (["missing.csv"], "No such file"),
    ):
        answer = call(*words)
        assert answer.exit_code == 2, answer.output
        assert told in answer.stderr
    assert not (shop / ".rekappa").exists()
    stopped = call("good.csv")
    assert stopped.exit_code == 1
    assert "the local stack is not running" in stopped.stderr


def test_options_that_only_java_knows_are_told() -> None:
    with pytest.raises(ConfigError, match=r"Cannot use the options of the cluster at 127.0.0.1:1: .*JAAS"):
        topic_exists({"bootstrap.servers": "127.0.0.1:1", "sasl.jaas.config": "x"}, "t")
