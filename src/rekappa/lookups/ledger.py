"""The driver's side of a recorded service: what it answered is on storage before any row that holds it goes on.

Tasks ask the ledger first and call the service only for what it does not know; what they then bring is written, as one
file, before they go on. For a key and a time the first answer holds, whoever asks again: a task that is tried again, a
sink that reads its rows twice, another query of the run. `rekappa.lookups.record` moves the files into the record.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from typing import Any
from uuid import uuid4

from rekappa.storage.location import Location
from rekappa.timeline import micros

REPLAY = "replay"
"""Stands for the query in the name of a file of answers that a replay asked for."""


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """A file of answers by its name: when they were asked for, by which query, in which of its batches."""

    name: str
    asked: int
    query: str
    batch: int

    @classmethod
    def read(cls, name: str) -> LedgerFile | None:
        """None for a file that is none of ours."""
        parts = name.removesuffix(".jsonl").split("_")
        if not name.endswith(".jsonl") or len(parts) != 4 or not parts[0].isdigit() or not parts[2].isdigit():
            return None
        return cls(name, int(parts[0]), parts[1], int(parts[2]))


@dataclass(frozen=True, slots=True)
class LedgerPlace:
    """Where tasks find a ledger."""

    host: str
    port: int
    secret: bytes


class Ledger:
    """The answers of one service that are not in the record yet: on storage, and in an index on local disk."""

    def __init__(
        self, folder: Location, *, live: bool, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.folder, self._live, self._now = folder, live, now
        self._lock = threading.Lock()
        # A database without a name is a file of its own that goes with the connection: memory stays bounded.
        self._index = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._index.execute(
            "CREATE TABLE answers (key TEXT, time INTEGER, answer TEXT, file TEXT, PRIMARY KEY (key, time)) "
            "WITHOUT ROWID"
        )
        for file in ledger_files(folder):
            self._note(file.name, (json.loads(line) for line in (folder / file.name).read_text().splitlines()))

    def known(self, wanted: list[list[Any]]) -> list[str | None]:
        """The answer of each key and time; None where there is none yet."""
        with self._lock:
            return [self._answer(key, time) for key, time in wanted]

    def keep(self, query: str, batch: int, brought: list[list[Any]]) -> list[str]:
        """Keep answers to keys and times, each where there is none yet; the answers that hold, in the same order."""
        with self._lock:
            fresh = {(key, time): answer for key, time, answer in brought if self._answer(key, time) is None}
            if fresh:
                asked = micros(self._now())
                name = f"{asked:020d}_{query}_{batch}_{uuid4().hex[:8]}.jsonl"
                entries = [
                    {"key": key, "moment": time, "answer": answer, "asked": asked, "live": self._live}
                    for (key, time), answer in fresh.items()
                ]
                (self.folder / name).write("".join(json.dumps(entry) + "\n" for entry in entries))
                self._note(name, iter(entries))
            return [str(self._answer(key, time)) for key, time, _ in brought]

    def forget(self, names: list[str]) -> None:
        """Let go of what was in these files: it is in the record."""
        with self._lock:
            self._index.executemany("DELETE FROM answers WHERE file = ?", [(name,) for name in names])

    def _answer(self, key: str, time: int) -> str | None:
        found = self._index.execute("SELECT answer FROM answers WHERE key = ? AND time = ?", (key, time)).fetchone()
        return None if found is None else str(found[0])

    def _note(self, name: str, entries: Iterator[dict[str, Any]]) -> None:
        rows = ((one["key"], one["moment"], one["answer"], name) for one in entries)
        self._index.execute("BEGIN")
        self._index.executemany("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)", rows)
        self._index.execute("COMMIT")


def ledger_files(folder: Location) -> list[LedgerFile]:
    """The files of answers in a folder, the oldest first."""
    found = (LedgerFile.read(name) for name in folder.names())
    return sorted((one for one in found if one is not None), key=lambda one: one.name)


_lock = threading.Lock()
_open: dict[tuple[str, bool], tuple[Ledger, LedgerPlace]] = {}


def opened_ledger(folder: Location, host: str, *, live: bool) -> LedgerPlace:
    """In the driver: the ledger of this folder, served to tasks by this process from now on."""
    with _lock:
        found = _open.get((folder.uri, live))
        if found is None:
            ledger, secret = Ledger(folder, live=live), secrets.token_bytes(16)
            listener = Listener(("127.0.0.1" if host == "127.0.0.1" else "", 0), backlog=128, authkey=secret)
            threading.Thread(target=_serve, args=(listener, ledger), name="rekappa-ledger", daemon=True).start()
            place = LedgerPlace(host, int(listener.address[1]), secret)
            found = _open[folder.uri, live] = (ledger, place)
        return found[1]


def forget_files(folder: Location, names: list[str]) -> None:
    """Tell this process's own ledgers of a folder that these files went into the record."""
    for live in (True, False):
        if (found := _open.get((folder.uri, live))) is not None:
            found[0].forget(names)


def _serve(listener: Listener, ledger: Ledger) -> None:
    while True:
        # One that does not know the secret, or goes while it is asked for it, is nobody's task.
        with suppress(AuthenticationError, EOFError, OSError):
            connection = listener.accept()
            threading.Thread(target=_talk, args=(connection, ledger), daemon=True).start()


def _talk(connection: Connection, ledger: Ledger) -> None:
    with suppress(EOFError, OSError), connection:
        while True:
            asked = json.loads(connection.recv_bytes())
            try:
                deed = ledger.keep if asked["deed"] == "keep" else ledger.known
                answer: Any = {"found": deed(*asked["told"])}
            except Exception as error:
                answer = {"failed": f"{type(error).__name__}: {error}"}
            connection.send_bytes(json.dumps(answer).encode())
