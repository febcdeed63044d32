"""Messages set aside in a temporary file until every row of the input was checked, and given back in time's order.

So nothing is sent of a file with a bad row in it, an input is read once, and memory holds two numbers a row.
"""

from __future__ import annotations

import struct
import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_HEAD = struct.Struct("<qq")
_NO_KEY = -1


@dataclass(frozen=True, slots=True)
class SpooledMessage:
    """What Kafka is given: the time is in milliseconds since 1970."""

    topic: str
    key: bytes | None
    value: bytes
    millis: int


class Spool:
    """Add messages, then take them out in the order of their times; equal times keep the order of the file."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._file = tempfile.TemporaryFile(prefix="rekappa-events-")  # noqa: SIM115
        self._times, self._places = array("q"), array("q")
        self._end = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._times)

    def add(self, millis: int, key: bytes | None, value: bytes) -> None:
        made = _HEAD.pack(_NO_KEY if key is None else len(key), len(value)) + (key or b"") + value
        self._file.write(made)
        self._times.append(millis)
        self._places.append(self._end)
        self._end += len(made)

    @property
    def span(self) -> tuple[int, int]:
        """The earliest and the latest time; there must be a message."""
        return min(self._times), max(self._times)

    def messages(self) -> Iterator[SpooledMessage]:
        self._file.flush()
        for at in sorted(range(len(self)), key=self._times.__getitem__):
            self._file.seek(self._places[at])
            key, value = _HEAD.unpack(self._file.read(_HEAD.size))
            yield SpooledMessage(
                self._topic, None if key == _NO_KEY else self._file.read(key), self._file.read(value), self._times[at]
            )
