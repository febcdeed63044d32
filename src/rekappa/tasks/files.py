"""What a task's command wrote: its answer, its log, and why it failed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rekappa.home import Home
from rekappa.masking import hidden

TAIL_BYTES = 200_000


def answer_file(home: Home, task: str) -> Path:
    """Its stdout: the data of `--json`."""
    return home.logs / f"{task}.json"


def log_file(home: Home, task: str) -> Path:
    """Its stderr, over all its starts."""
    return home.logs / f"{task}.log"


def answer(home: Home, task: str) -> Any:
    """The JSON that the command answered; None while, or where, there is none."""
    try:
        return json.loads(answer_file(home, task).read_text("utf-8"))
    except (OSError, ValueError):
        return None


def tail(file: Path, lines: int = 200) -> list[str]:
    """The last lines of a text file, secrets masked; none if it is not there."""
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - TAIL_BYTES))
            text = opened.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [hidden(line) for line in text.splitlines()[-lines:]]


def cause(log: Path, code: int) -> str:
    """Why a command ended with this code: its last `error:` line with the hint after it, or its last line."""
    lines = [line for line in tail(log) if line.strip()]
    at = max((place for place, line in enumerate(lines) if line.startswith("error: ")), default=None)
    if at is not None:
        hint = lines[at + 1].removeprefix("hint: ") if lines[at + 1 : at + 2] and "hint: " in lines[at + 1] else ""
        return " ".join(filter(None, (lines[at].removeprefix("error: "), hint)))
    if code < 0:
        return f"its process was ended by signal {-code}"
    return f"it ended with code {code}" + (f": {lines[-1][:300]}" if lines else "")
