"""What a service answered is kept before it is used: first answers hold, also after kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekappa.answers import called
from rekappa.errors import AppError, RunError
from rekappa.lookups.asking import Recording
from rekappa.lookups.ledger import REPLAY, Ledger, LedgerFile, LedgerPlace, ledger_files, opened_ledger
from rekappa.lookups.record import _settled
from rekappa.storage.location import Location

VICTIM = """
import sys
from pathlib import Path
from rekappa.lookups.ledger import Ledger
from rekappa.storage.location import Location

ledger = Ledger(Location.local(Path(sys.argv[1])), live=True)
for number in range(10**9):
    kept = ledger.keep("query", number, [[f"key {number % 50}", number // 50, f"answer {number}"]])
    print(number, kept[0], flush=True)
"""


def test_what_was_kept_holds_after_kill_9(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", VICTIM, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    told = [process.stdout.readline().split(" ", 1) for _ in range(120)]
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    again = Ledger(Location.local(tmp_path), live=True)
    for text, answer in told:
        number = int(text)
        wanted = [f"key {number % 50}", number // 50]
        assert again.known([wanted]) == [answer.strip()]
        assert again.keep("query", number, [[*wanted, "another"]]) == [answer.strip()]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 99)), max_size=5)))
def test_the_first_answer_to_a_key_and_time_holds(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[str, int, int]]]
) -> None:
    folder = Location.local(tmp_path_factory.mktemp("ledger"))
    ledger, held = Ledger(folder, live=True), dict[tuple[str, int], str]()
    for number, batch in enumerate(batches):
        # Within what one task brings a key and time stands once.
        brought = {(key, time): str(answer) for key, time, answer in batch}
        for pair, answer in brought.items():
            held.setdefault(pair, answer)
        kept = ledger.keep("q", number, [[*pair, answer] for pair, answer in brought.items()])
        assert kept == [held[pair] for pair in brought]
    lines = [json.loads(line) for one in ledger_files(folder) for line in (folder / one.name).read_text().splitlines()]
    assert {(one["key"], one["moment"]): one["answer"] for one in lines} == held
    assert len(lines) == len(held), "nothing is kept twice"
    assert [set(line) for line in lines] == [{"key", "moment", "answer", "asked", "live"}] * len(lines)
    ledger.forget([one.name for one in ledger_files(folder)])
    assert ledger.known([[key, time] for key, time in held]) == [None] * len(held)


def test_a_task_that_is_tried_again_asks_nobody(tmp_path: Path) -> None:
    place = opened_ledger(Location.local(tmp_path), "127.0.0.1", live=True)
    asked: list[str] = []

    def ask(keys: Any) -> list[Mapping[str, Any]]:
        asked.extend(key["k"] for key in keys)
        return [{"n": len(asked)} for _ in keys]

    give = Recording(place).asker(ask)
    wanted = [('{"k":"a"}', 1), ('{"k":"b"}', 1), ('{"k":"a"}', 2)]
    found = [give(wanted) for _ in range(5)]
    assert all(one == found[0] for one in found)
    assert sorted(asked) == ["a", "a", "b"]


def test_nobody_else_can_ask(tmp_path: Path) -> None:
    place = opened_ledger(Location.local(tmp_path), "127.0.0.1", live=True)
    with pytest.raises(AuthenticationError):
        Client((place.host, place.port), authkey=b"guessed")
    assert Recording(place).asker(lambda keys: [{} for _ in keys])([("{}", 1)]) == {("{}", 1): "{}"}
    gone = LedgerPlace("127.0.0.1", 1, b"secret")
    with pytest.raises(RunError, match="Cannot ask the ledger of answers"):
        Recording(gone).asker(lambda keys: [])([("{}", 1)])


def test_only_what_may_not_be_run_again_is_collected() -> None:
    def file(asked: int, query: str, batch: int) -> LedgerFile:
        found = LedgerFile.read(f"{asked:020d}_{query}_{batch}_0123abcd.jsonl")
        assert found is not None
        return found

    files = [file(1, "q", 0), file(2, "q", 1), file(3, "r", 0), file(4, REPLAY, 0), file(9, "q", 0)]
    assert _settled(files, 9) == [files[0], files[3]], "neither what is new nor the newest batch of a query"
    assert LedgerFile.read("notes.jsonl") is None
    assert LedgerFile.read("1_q_x_0.jsonl") is None


def test_an_answer_that_is_no_json_and_a_call_that_answers_too_little_are_refused() -> None:
    with pytest.raises(TypeError, match="an answer holds a set"):
        called(lambda keys: [{"x": {1}} for _ in keys], None, [("{}", 1)])
    with pytest.raises(AppError, match="it was given 2 keys and answered 1 times"):
        called(lambda keys: [None], None, [("{}", 1), ("{}", 2)])
