"""The map inside our state store against a dictionary: any puts, removals and copies, and what was given out stays."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from rekappa.spark.private import constructor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIELDS = 2


class Rows:
    """The map, spoken to with numbers: a key or a value is a row of two; of a value the second is a text."""

    def __init__(self, spark: SparkSession, java: Any = None) -> None:
        self._spark, self._jvm = spark, spark._jvm
        self.java = java or constructor(spark, "rekappa.RowsInPages")(FIELDS, FIELDS)

    def row(self, number: int, text: str) -> Any:
        jvm: Any = self._jvm
        writer = jvm.org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter(FIELDS)
        writer.resetRowWriter()
        writer.write(0, number)
        writer.write(1, jvm.org.apache.spark.unsafe.types.UTF8String.fromString(text))
        return writer.getRow().copy()

    def put(self, key: int, value: str) -> Any:
        return self.text(self.java.put(self.row(key, "k" * (key % 5)), self.row(0, value)))

    def get(self, key: int) -> Any:
        return self.text(self.java.get(self.row(key, "k" * (key % 5))))

    def remove(self, key: int) -> Any:
        return self.text(self.java.remove(self.row(key, "k" * (key % 5))))

    def copied(self) -> Rows:
        copy = Rows(self._spark)
        copy.java.putAll(self.java)
        return copy

    @property
    def everything(self) -> dict[int, str]:
        found, all_of_them = {}, self.java.iterator()
        while all_of_them.hasNext():
            pair = all_of_them.next()
            found[int(pair.key().getLong(0))] = str(pair.value().getUTF8String(1).toString())
        return found

    @staticmethod
    def text(row: Any) -> str | None:
        return None if row is None else str(row.getUTF8String(1).toString())


@pytest.mark.parametrize("seed", range(4))
def test_it_holds_what_a_dictionary_holds(spark: SparkSession, seed: int) -> None:
    dice = random.Random(seed)
    rows, truth = Rows(spark), dict[int, str]()
    versions: list[tuple[Rows, dict[int, str]]] = []
    keys = 2 ** dice.randint(3, 8)
    for step in range(600):
        key = dice.randrange(keys)
        done = dice.random()
        if done < 0.5:
            value = "v" * dice.choice([0, 1, 9, 200]) + str(step)
            assert rows.put(key, value) == truth.get(key)
            truth[key] = value
        elif done < 0.8:
            assert rows.remove(key) == truth.pop(key, None)
        elif done < 0.98:
            assert rows.get(key) == truth.get(key)
        else:
            versions.append((rows, dict(truth)))
            rows = rows.copied()
            assert rows.everything == truth
        assert rows.java.size() == len(truth)
    assert rows.everything == truth
    assert versions
    for before, known in versions:
        assert before.everything == known, "a copy changes nothing of what it was copied from"


def test_a_task_that_is_tried_again_finds_the_version_that_it_began_with(spark: SparkSession, tmp_path: Path) -> None:
    """Its first try has made the next version already, and only one is kept in memory."""
    provider = state_in(spark, tmp_path)
    rows = Rows(spark)

    def made(version: int, **pairs: str) -> int:
        store = provider.getStore(version, nothing(spark))
        for key, value in pairs.items():
            store.put(rows.row(ord(key), "k"), rows.row(0, value), "default")
        return int(store.commit())

    def held(version: int) -> dict[str, str]:
        store = provider.getStore(version, nothing(spark))
        found, going = {}, store.iterator("default")
        while going.hasNext():
            pair = going.next()
            found[chr(pair.key().getLong(0))] = str(Rows.text(pair.value()))
        store.abort()
        return found

    assert made(0, a="1", b="1") == 1
    assert made(1, b="first try") == 2
    assert made(1, b="second try", c="2") == 2
    assert held(2) == {"a": "1", "b": "second try", "c": "2"}
    assert held(1) == {"a": "1", "b": "1"}
    assert made(2, a="3") == 3
    provider = state_in(spark, tmp_path)
    assert held(3) == {"a": "3", "b": "second try", "c": "2"}


def state_in(spark: SparkSession, folder: Path) -> Any:
    """The state store as an operator has it, one version in memory."""
    from rekappa.spark.private import java_schema

    assert spark.streams.active == []  # asking starts what state stores report to
    jvm: Any = spark._jvm
    state = jvm.org.apache.spark.sql.execution.streaming.state
    shape = java_schema(spark, spark.createDataFrame([], "number BIGINT, text STRING").schema)
    settings = spark._jsparkSession.sessionState().conf().clone()
    settings.setConfString("spark.sql.streaming.maxBatchesToRetainInMemory", "1")
    hadoop = jvm.org.apache.hadoop.conf.Configuration(spark._jsc.hadoopConfiguration())
    hadoop.set("sql.streaming.runId", str(uuid4()))
    provider = constructor(spark, "rekappa.StateInPages")()
    provider.init(
        state.StateStoreId(str(folder), 0, 0, "default"), shape, shape, state.NoPrefixKeyStateEncoderSpec(shape), False,
        state.StateStoreConf.apply(settings), hadoop, False, nothing(spark),
    )  # fmt: skip
    return provider


def nothing(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.scala.Option.empty()


def test_keys_are_in_the_order_in_which_they_came(spark: SparkSession) -> None:
    rows = Rows(spark)
    for key in (5, 3, 9, 1, 3):
        rows.put(key, str(key))
    rows.remove(9)
    rows.put(9, "again")
    assert list(rows.everything) == [5, 3, 1, 9]
    assert list(rows.copied().everything) == [5, 3, 1, 9]


def test_what_was_given_out_and_what_is_being_gone_through_stay(spark: SparkSession) -> None:
    rows = Rows(spark)
    for key in range(200):
        rows.put(key, f"old {key}")
    given = rows.java.get(rows.row(7, "kk"))
    going, seen = rows.java.iterator(), []
    while going.hasNext():
        pair = going.next()
        key = int(pair.key().getLong(0))
        seen.append(key)
        rows.remove(key)
        rows.put(key + 1000, "new")
    assert seen == list(range(200)), "what is added meanwhile is not gone through"
    assert Rows.text(given) == "old 7"
    assert rows.everything == {key + 1000: "new" for key in range(200)}
