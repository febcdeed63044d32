"""What a job gets from a lookup or a service, by rows alone: any history, any order of changes, any answer."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from rekappa import Answers, Lookup
from rekappa.config.lookups import ChangesLookup
from rekappa.errors import AppError
from rekappa.lookup import Precedence
from rekappa.lookups.asking import Recording
from rekappa.lookups.changes import keyless, versions_of_changes
from rekappa.lookups.ledger import opened_ledger
from rekappa.lookups.recalled import Recalled
from rekappa.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = datetime(2026, 11, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize("order", Precedence)
def test_any_history_is_joined_as_an_oracle_says(spark: SparkSession, order: Precedence) -> None:
    """Hundreds of small histories at once, with ties, deletes and changes that come out of order."""
    rng = random.Random(9)
    rows, asked = [], []
    for key in range(300):
        for number in range(rng.randrange(6)):
            moment = START + rng.randrange(6) * MINUTE
            rows.append((key, f"{key}-{number}", moment, rng.randrange(1000) * 10 + number, rng.random() < 0.2))
        asked += [(key, START + rng.randrange(-1, 8) * MINUTE / 1) for _ in range(3)]
    held = spark.createDataFrame(rows, "k BIGINT, v STRING, since TIMESTAMP, seq BIGINT, gone BOOLEAN")
    events = spark.createDataFrame(asked, "k BIGINT, at TIMESTAMP")
    lookup = Lookup.of(held, "k", "since", sequence="seq", deleted="gone", order=order)

    def oracle(key: int, when: datetime) -> str | None:
        known = [row for row in rows if row[0] == key and row[2] <= when]
        rank = (lambda row: (row[2], row[3])) if order is Precedence.VALIDITY else (lambda row: (row[3],))
        best = max(known, key=rank, default=None)
        return None if best is None or best[4] else best[1]

    found = Counter((row.k, row["at"].astimezone(UTC), row.v) for row in lookup.join(events, "at").collect())
    assert found == Counter((key, when, oracle(key, when)) for key, when in asked)


def test_what_can_not_be_joined_is_refused(spark: SparkSession) -> None:
    held = spark.createDataFrame([(1, "x", START)], "k BIGINT, v STRING, since TIMESTAMP")
    lookup = Lookup.of(held, ["k"], "since")
    events = spark.createDataFrame([(1, START)], "k BIGINT, at TIMESTAMP")
    with pytest.raises(AppError, match="have no column 'when'"):
        lookup.join(events, "when")
    with pytest.raises(AppError, match="both it and the events have a column 'v'"):
        lookup.join(events.selectExpr("k", "at", "1 AS v"), "at")
    with pytest.raises(AppError, match="is a timestamp_ntz, not a TIMESTAMP"):
        lookup.join(events.selectExpr("k", "CAST(at AS TIMESTAMP_NTZ) AS at"), "at")
    with pytest.raises(AppError, match="is a date, not a TIMESTAMP"):
        Lookup.of(held.selectExpr("k", "v", "CAST(since AS DATE) AS since"), "k", "since")
    with pytest.raises(AppError, match="on 'z': its key is k"):
        lookup.join(events, "at", on={"z": "k"})
    with pytest.raises(AppError, match="with how='outer'"):
        lookup.join(events, "at", how="outer")  # type: ignore[arg-type]
    with pytest.raises(AppError, match="its key 'k' is a whole number and the events' 'k' a double"):
        lookup.join(events.selectExpr("CAST(k AS DOUBLE) AS k", "at"), "at")
    with pytest.raises(AppError, match="both it and the events have a column 'v'"):
        lookup.join(events.selectExpr("k", "at", "1 AS V"), "at")
    last = spark.createDataFrame([(1, datetime(9999, 12, 31, 23, tzinfo=UTC))], "k BIGINT, at TIMESTAMP")
    assert [row.v for row in lookup.join(last, "at").select("v").collect()] == ["x"], "no event is too late"
    with pytest.raises(AppError, match="as deleted of a lookup: it is a bigint"):
        Lookup.of(held, "k", "since", deleted="k")
    with pytest.raises(AppError, match="as sequence of a lookup: it is a text"):
        Lookup.of(held, "k", "since", sequence="v")


@dataclass(frozen=True)
class Message:
    """One of a topic of changes. `op` is Debezium's; None is a tombstone."""

    partition: int
    offset: int
    came: datetime
    name: str
    op: str | None
    before: str | None
    after: str | None
    number: int

    @property
    def place(self) -> tuple[int, int]:
        return self.partition, self.offset

    @property
    def value(self) -> str:
        return f"{self.partition}.{self.offset}"


def topic() -> list[Message]:
    """A year's trouble in one topic: keys in every partition, clocks that go back, tombstones, truncations, no keys."""
    rng, made, offsets = random.Random(4), [], Counter[int]()
    for at in range(500):
        partition, key = rng.randrange(3), f"k{rng.randrange(40)}"
        came = START + at * MINUTE - (rng.randrange(40) * MINUTE if rng.random() < 0.2 else 0 * MINUTE)
        op = rng.choices(["u", "d", "t", "m", None], [70, 8, 0.5, 3, 20])[0]
        before = key if op == "d" else f"k{rng.randrange(40)}" if op == "u" and rng.random() < 0.1 else None
        after = key if op == "u" else None
        number = rng.randrange(3) + at // (3 if rng.random() < 0.8 else 6)
        made.append(Message(partition, offsets[partition], came, key, op, before, after, number))
        offsets[partition] += 1
    assert {one.op for one in made} == {"u", "d", "t", "m", None}
    return made


def changes_of(messages: Sequence[Message], key: str, ops: Sequence[str]) -> Iterator[tuple[Message, bool]]:
    """What concerns a key, and whether it holds afterwards."""
    own = [one for one in messages if one.op in ops and key == (one.after or one.before)]
    left = [one for one in messages if one.op == "u" and "d" in ops and one.before == key != one.after]
    yield from ((one, one.op == "u") for one in own)
    yield from ((one, False) for one in (*left, *(one for one in messages if one.op == "t" and "t" in ops)))
    for one in messages:
        before = [
            it
            for it in (*own, *left)
            if it.name == one.name
            and (it.offset < one.offset if it.partition == one.partition else it.came <= one.came)
        ]
        if one.op is None and before and max(before, key=lambda it: (it.came, it.place)) not in left:
            yield one, False


def expected(messages: Sequence[Message], key: str, ops: Sequence[str], ranked: bool, when: datetime) -> str | None:
    """By hand: what counts by then, in Kafka's order; the highest number since the last tombstone."""
    latest: dict[int, datetime] = {}
    line = []
    for one, holds in sorted(changes_of(messages, key, ops), key=lambda it: it[0].place):
        latest[one.partition] = max(one.came, latest.get(one.partition, one.came))
        line.append((latest[one.partition], one.place, one, holds))
    held: tuple[int, str | None] = (-1, None)
    for counts, _, one, holds in sorted(line, key=lambda it: it[:2]):
        if counts + MINUTE > when:
            break
        if one.op is None:
            held = (-1, None)
        elif not ranked or one.number >= held[0]:
            held = (one.number, one.value if holds else None)
    return held[1]


@pytest.mark.parametrize("envelope", ["debezium", None])
def test_changes_hold_in_the_order_of_kafka_or_of_their_numbers(spark: SparkSession, envelope: Any) -> None:
    messages = topic()
    ops = ("u", "d", "t") if envelope else ("u",)
    row = "STRUCT<k: STRING, v: STRING>"
    place = "m STRUCT<topic: STRING, partition: INT, offset: BIGINT, kafka_ingestion_ts: TIMESTAMP, key: BINARY, "
    place += "region: STRING>"

    def where(one: Message) -> tuple[Any, ...]:
        return "t", one.partition, one.offset, one.came, one.name.encode(), "r"

    def frame(rows: list[tuple[Any, ...]], columns: str) -> DataFrame:
        return spark.createDataFrame(rows, f"{columns}, {place}").withColumnRenamed("m", "__metadata__")

    told = [one for one in messages if one.op is not None]
    if envelope:
        packed = [
            (one.before and (one.before, "old"), one.after and (one.after, one.value), one.op, one.number, where(one))
            for one in told
        ]
        archived = frame(packed, f"before {row}, after {row}, op STRING, lsn BIGINT")
    else:
        archived = frame(
            [(one.after, one.value, one.number, where(one)) for one in told], "k STRING, v STRING, lsn BIGINT"
        )
    letters = frame([(None, where(one)) for one in messages if one.op is None], "value BINARY")
    rng = random.Random(6)
    asked = [(f"k{at % 40}", START + rng.randrange(560) * MINUTE + MINUTE / 2) for at in range(400)]
    events = spark.createDataFrame(asked, "k STRING, at TIMESTAMP")
    seen = {}
    for sequence in (None, "lsn"):
        declared = ChangesLookup(type="kafka", source="s", key=("k",), sequence=sequence, envelope=envelope, lag=MINUTE)
        order = Precedence.ARRIVAL if sequence else Precedence.VALIDITY
        versions = versions_of_changes(archived, letters, declared)
        lookup = Lookup.of(versions, "k", "__arrived", sequence="__rank", deleted="rekappa_deleted", order=order)
        found = Counter((one.k, one["at"].astimezone(UTC), one.v) for one in lookup.join(events, "at").collect())
        wanted = Counter((key, when, expected(messages, key, ops, bool(sequence), when)) for key, when in asked)
        assert found == wanted
        seen[sequence] = wanted
        left = [one for one in told if (one.op == "m" if envelope else one.after is None)]
        assert keyless(archived, declared).count() == len(left) > 0
    assert seen[None] != seen["lsn"]
    assert 50 < sum(value is None for _, _, value in seen[None].elements()) < 350


def test_an_operator_around_a_call_keeps_what_it_got(spark: SparkSession, tmp_path: Path) -> None:
    """The same rows read twice, nulls, and answers that are none."""
    events = spark.createDataFrame(
        [(1, 5, START), (2, 5, START), (3, 6, START), (4, None, START), (5, 7, None), (6, 8, START)],
        "id BIGINT, account BIGINT, at TIMESTAMP",
    ).repartition(3)

    def ask(keys: Sequence[Mapping[str, Any]]) -> list[Any]:
        return [None if key["account"] == 8 else {"n": uuid4().hex, "odd": "no column"} for key in keys]

    ledger = opened_ledger(Location.local(tmp_path), "127.0.0.1", live=True)
    asked = Answers(("account",), "n STRING", Recording(ledger)).join(events, ask, at="at")
    first, second = ({row.id: row.n for row in asked.collect()} for _ in range(2))
    assert first == second
    assert first[1] == first[2] != first[3]
    assert [first[number] for number in (4, 5, 6)] == [None, None, None]
    assert set(asked.columns) == {"id", "account", "at", "n"}
    only = Answers.of("account", "n STRING").join(events, ask, at="at")
    assert {row.id for row in only.collect() if row.n} == {1, 2, 3}
    nothing = spark.createDataFrame([], "__key STRING, __time BIGINT, __answer STRING")
    with pytest.raises(Exception, match="no answer is recorded for"):
        Answers(("account",), "n STRING", Recalled("s", nothing)).join(events, ask, at="at").collect()
    nulls = Answers(("account",), "n STRING", Recalled("s", nothing, nulls=True)).join(events, ask, at="at")
    assert {row.n for row in nulls.collect()} == {None}
    with pytest.raises(Exception, match="it was given 1 keys and answered 0 times"):
        Answers.of("account", "n STRING").join(events.where("id = 1"), lambda keys: [], at="at").collect()
    with pytest.raises(AppError, match="both its answer and the events have a column 'id'"):
        Answers.of("account", "id STRING").join(events, ask, at="at")
    with pytest.raises(AppError, match="is a bigint, not a TIMESTAMP"):
        Answers.of("account", "n STRING").join(events, ask, at="id")
