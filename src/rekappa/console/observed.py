"""What slow commands said last: pages never wait for Kafka, for a table's metadata or for an app's code.

A command is run again, with `--json`, in a process of its own when somebody asks and its answer is old; meanwhile the
old one is shown with its age. It ends with the console, however that ends. Answers lie in the project folder: a console
that is started anew has them at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rekappa.home import Home
from rekappa.masking import hidden

FRESH = timedelta(seconds=60)
FOR_EVER = timedelta(days=36500)
FORGOTTEN = timedelta(days=30)
"""Answers that are older, such as those about code that has changed since, are removed when a console starts."""
PROGRAM = (sys.executable, "-m", "rekappa.tasks.attached")
GIVEN_UP = 600
AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Observation:
    """`value` is what the command printed; None if it has not answered yet. `going`: it is asked again just now."""

    value: Any = None
    at: datetime | None = None
    error: str | None = None
    going: bool = False


class Observed:
    def __init__(self, home: Home, folder: Path) -> None:
        self._home, self._folder = home, folder
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="observed")
        self._lock = threading.Lock()
        self._asked: set[str] = set()
        self._children: set[subprocess.Popen[str]] = set()
        self._closed = False
        for file in (home.root / "console").glob("*.json"):
            if time.time() - file.stat().st_mtime > FORGOTTEN.total_seconds():
                file.unlink(missing_ok=True)

    def ask(self, *words: str, version: str = "", fresh: timedelta = FRESH) -> Observation:
        """The newest answer, at once. `version` names what the answer depends on: another one has other answers."""
        key = hashlib.sha256("\0".join((version, *words)).encode()).hexdigest()[:24]
        known = self._read(key)
        if known.at is None or datetime.now(UTC) - known.at > fresh:
            with self._lock:
                if key not in self._asked and not self._closed:
                    self._asked.add(key)
                    self._pool.submit(self._refresh, key, words)
        return Observation(known.value, known.at, known.error, going=key in self._asked)

    def close(self) -> None:
        """End what is under way; nothing is asked any more."""
        with self._lock:
            self._closed = True
            for child in self._children:
                child.kill()
        self._pool.shutdown(cancel_futures=True)

    def _file(self, key: str) -> Path:
        return self._home.root / "console" / f"{key}.json"

    def _read(self, key: str) -> Observation:
        try:
            told = json.loads(self._file(key).read_text("utf-8"))
            return Observation(told["value"], datetime.fromisoformat(told["at"]), told["error"])
        except (OSError, ValueError, KeyError):
            return Observation()

    def _refresh(self, key: str, words: tuple[str, ...]) -> None:
        try:
            value, error = self._run(words)
            known = self._read(key)
            # A failure leaves what was known: a broker that is away does not empty the page.
            told = {"value": value if error is None else known.value, "error": error}
            file = self._file(key)
            file.parent.mkdir(exist_ok=True)
            written = file.with_suffix(f".{os.getpid()}")
            written.write_text(json.dumps({**told, "at": datetime.now(UTC).isoformat(), "words": words}), "utf-8")
            written.replace(file)
        finally:
            with self._lock:
                self._asked.discard(key)

    def _run(self, words: tuple[str, ...]) -> tuple[Any, str | None]:
        environ = {**os.environ, "REKAPPA_HOME": str(self._home.root)}
        with self._lock:
            if self._closed:
                return None, "the console was stopped"
            attached, held = os.pipe()
            child = subprocess.Popen(
                [*PROGRAM, *words, "--json"],
                stdin=attached,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
                cwd=self._folder,
                env=environ,
            )
            os.close(attached)
            self._children.add(child)
        try:
            out, errors = child.communicate(timeout=GIVEN_UP)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            return None, f"it did not answer within {GIVEN_UP} seconds"
        finally:
            os.close(held)
            with self._lock:
                self._children.discard(child)
        try:
            return json.loads(out), None
        except ValueError:
            lines = [line.removeprefix("error: ") for line in errors.splitlines() if line.startswith("error: ")]
            return None, hidden(lines[-1] if lines else f"it ended with code {child.returncode}")
