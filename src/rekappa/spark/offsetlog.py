"""Spark's own log of micro-batches, read from a checkpoint folder.

offsets/N   written before batch N runs: version, metadata, one line per source
commits/N   written after its sink has it
sources/I/0 where Kafka source I started, before batch 0
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from rekappa.errors import RunError
from rekappa.storage.location import Location
from rekappa.timeline import EPOCH


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """One micro-batch as Spark logged it. `sources` holds each source's end offset, as written; None if it had none."""

    number: int
    watermark: datetime | None
    planned: datetime
    sources: tuple[str | None, ...]


def _numbers(folder: Location) -> list[int]:
    return sorted(int(name) for name in folder.names() if name.isdigit())


def last_planned(checkpoint: Location) -> int | None:
    """The newest batch whose offsets are logged, committed or not."""
    return max(_numbers(checkpoint / "offsets"), default=None)


def last_committed(checkpoint: Location) -> int | None:
    return max(_numbers(checkpoint / "commits"), default=None)


def read_batch(checkpoint: Location, number: int) -> LoggedBatch:
    """One logged batch; a damaged file is named."""
    path = checkpoint / "offsets" / str(number)
    version, *lines = path.read_text().splitlines()
    if version != "v1" or not lines:
        raise RunError(f"Cannot read {path}: offset log version {version!r}, this rekappa knows 'v1'")
    metadata = json.loads(lines[0])
    millis = int(metadata.get("batchWatermarkMs", 0))
    return LoggedBatch(
        number,
        EPOCH + timedelta(milliseconds=millis) if millis > 0 else None,
        EPOCH + timedelta(milliseconds=int(metadata["batchTimestampMs"])),
        tuple(None if line == "-" else line for line in lines[1:]),
    )


def logged_batch(checkpoint: Location, number: int) -> LoggedBatch | None:
    """One logged batch; None if its file is damaged. Raises FileNotFoundError."""
    try:
        return read_batch(checkpoint, number)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, RunError):
        return None


def logged_topic(line: str | None) -> str | None:
    """The topic that a line of the log is about: Kafka's are `{"plays":{"0":120}}`; None for one of another source."""
    told = json.loads(line) if line and line.startswith("{") else None
    if not isinstance(told, dict) or not all(isinstance(ends, dict) for ends in told.values()):
        return None
    return ",".join(sorted(told)) or None


def committed_batches(checkpoint: Location, after: int | None) -> Iterator[tuple[LoggedBatch, datetime]]:
    """The committed batches above `after`, in order, each with the time of its commit."""
    for number in _numbers(checkpoint / "commits"):
        if after is None or number > after:
            yield read_batch(checkpoint, number), (checkpoint / "commits" / str(number)).modified()


def starting_offsets(checkpoint: Location) -> tuple[str | None, ...]:
    """Where each Kafka source began; None for a source that keeps no such file."""
    folder = checkpoint / "sources"
    starts: list[str | None] = []
    for number in range(max(_numbers(folder), default=-1) + 1):
        path = folder / str(number) / "0"
        text = path.read_bytes().lstrip(b"\0").decode() if path.exists() else ""
        starts.append(text.split("\n", 1)[1].strip() if text.startswith("v") and "\n" in text else None)
    return tuple(starts)
